"""Commit log, consume queues, index and replication."""
