"""Delayed messages: one queue of SCHEDULE_TOPIC_XXXX per delay level, delivered when their time has come."""
