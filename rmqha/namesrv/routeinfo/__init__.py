"""Which brokers live, and which topics they have."""
