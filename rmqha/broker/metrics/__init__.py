"""What a broker tells Prometheus: the names of RocketMQ's exporter, those of 5.x, and its own."""
