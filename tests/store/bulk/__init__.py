"""The bulk kernel, both implementations against the single-record path."""
