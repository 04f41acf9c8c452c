"""A small typed client: producer and consumers."""
