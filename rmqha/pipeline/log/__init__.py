"""Commit logs in files: find them, cut them into ranges, turn records into columns; the format `rocketmq-commitlog`."""
