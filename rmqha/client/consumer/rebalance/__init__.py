"""How the queues of a topic are shared among the consumers of a group."""
