"""The store tools."""
