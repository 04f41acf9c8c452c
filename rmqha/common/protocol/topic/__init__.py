"""Events that brokers put into topics."""
