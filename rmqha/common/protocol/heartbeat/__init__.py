"""What clients tell brokers in heartbeats."""
