"""`rmqha console`: a small web console for a cluster, served by the tool itself."""
