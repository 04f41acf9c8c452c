"""Codes, headers and bodies of the wire protocol."""
