"""The name server's key-value store: order-topic settings and what operators put there."""
