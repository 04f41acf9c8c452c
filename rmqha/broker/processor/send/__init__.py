"""Sends, from the bytes that a connection has brought to the answers."""
