"""What a name server tells Prometheus."""
