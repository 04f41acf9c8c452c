"""`rmqha top`: a cluster on a terminal, live."""
