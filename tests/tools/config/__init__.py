"""`rmqha config`."""
