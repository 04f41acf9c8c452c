"""Message trace: who sent and consumed a message, when, and for how long."""
