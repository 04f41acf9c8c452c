"""The hash index of message keys."""
