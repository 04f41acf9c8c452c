"""Where to read more about an error."""
