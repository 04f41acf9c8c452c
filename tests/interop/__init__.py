"""rmqha beside the real RocketMQ 4.9, and whole rmqha processes under faults."""
