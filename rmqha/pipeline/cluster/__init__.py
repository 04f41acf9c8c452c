"""A live cluster, reached through its name server: the format `rocketmq`, as source, stream and sink."""
