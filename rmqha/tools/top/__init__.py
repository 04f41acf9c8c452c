"""`rmqha top`: a live view of a cluster on a terminal."""
