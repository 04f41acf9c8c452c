"""`rmqha console`: a small web page about a cluster, served by the tool."""
