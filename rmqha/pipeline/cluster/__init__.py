"""A live cluster through its name server: the format `rocketmq`, as source, stream and sink."""
