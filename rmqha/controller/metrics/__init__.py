"""What a controller tells Prometheus."""
