"""rmqha: RocketMQ 4.9's name server, broker store and master-slave replication in Python."""

__version__ = "0.1.0"
