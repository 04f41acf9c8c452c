"""Watching consumers: how far behind they are, and whether they are stuck."""
