"""Exports into JSON files."""
