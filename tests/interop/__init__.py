"""Tests of rmqha together with the real RocketMQ 4.9, and of whole rmqha processes under faults."""
