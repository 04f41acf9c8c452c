"""Tests of rmqha.broker.transaction."""
