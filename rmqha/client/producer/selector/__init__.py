"""Ways to choose a queue for a message."""
