"""Tests of rmqha.broker.filter."""
