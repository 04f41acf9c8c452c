"""Producers of a broker."""
