"""Helpers for users of the client."""
