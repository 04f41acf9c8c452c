"""Names shared by all modules."""
