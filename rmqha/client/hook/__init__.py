"""Hooks for sends, pulls, and calls of listeners."""
