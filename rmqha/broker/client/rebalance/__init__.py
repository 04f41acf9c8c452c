"""Locks of queues for orderly consumers."""
