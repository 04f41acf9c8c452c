"""Replication, seen and received: `rmqha ha`."""
