"""What is wrong with a configuration, a host, or a cluster: `rmqha doctor`."""
