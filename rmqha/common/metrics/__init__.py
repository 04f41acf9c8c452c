"""Numbers for Prometheus: how they are written. Brokers and name servers say which there are."""
