"""Sending messages: DefaultMQProducer and its results."""
