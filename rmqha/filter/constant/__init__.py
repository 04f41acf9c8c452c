"""Small values."""
