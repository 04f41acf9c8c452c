"""What a slave copies from its master besides the commit log."""
