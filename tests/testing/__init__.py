"""Tests of rmqha.testing, the embedded RocketMQ for other people's tests."""
