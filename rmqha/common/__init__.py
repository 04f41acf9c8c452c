"""Shared code: threads, configuration, models and protocol types. It imports nothing from the packages above it."""
