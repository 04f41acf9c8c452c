"""Codes, headers and bodies."""
