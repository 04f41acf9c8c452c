"""What a running cluster looks like at a moment, and how that changes: `rmqha top` and `rmqha console` stand on it."""
