"""Shared parts of the tests: waiting, fixtures of whole clusters, the real RocketMQ."""
