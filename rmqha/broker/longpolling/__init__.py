"""Pulls that wait for messages."""
