"""Consume queues."""
