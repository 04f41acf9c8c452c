"""Replication status, log reception and role changes: `rmqha ha`."""
