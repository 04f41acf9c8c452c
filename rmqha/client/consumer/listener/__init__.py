"""What a message listener gets and returns."""
