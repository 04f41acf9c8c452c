"""Keeping the broker from being buried in requests."""
