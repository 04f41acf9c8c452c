"""Calls from the broker to clients."""
