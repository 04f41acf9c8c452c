"""RocketMQ for the tests of others."""
