"""The metrics of a broker for Prometheus: named as in RocketMQ's exporter, as in 5.x, and rmqha's own."""
