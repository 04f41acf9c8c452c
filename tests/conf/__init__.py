"""The conf folder."""
