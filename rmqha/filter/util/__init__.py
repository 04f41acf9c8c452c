"""Bit maps and bloom filters."""
