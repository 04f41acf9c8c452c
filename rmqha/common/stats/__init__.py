"""Counters with windows of a minute, an hour and a day."""
