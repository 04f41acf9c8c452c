"""Shared ground: threads, configuration, models and protocol types. Imports nothing above it."""
