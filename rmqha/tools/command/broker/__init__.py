"""Brokers: settings, statistics, cleaning."""
