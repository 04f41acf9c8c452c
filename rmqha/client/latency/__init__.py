"""Leaving out brokers that answer slowly."""
