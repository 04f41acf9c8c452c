"""The processors of the broker's requests."""
