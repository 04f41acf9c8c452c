"""`rmqha doctor`: finds problems of a configuration, a host, or a cluster."""
