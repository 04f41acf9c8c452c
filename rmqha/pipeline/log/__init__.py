"""Commit logs in files: finding them, cutting them into ranges, records as columns, the format `rocketmq-commitlog`."""
