"""What the broker answers to each request."""
