"""How far each consumer group has read."""
