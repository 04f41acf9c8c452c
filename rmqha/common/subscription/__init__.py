"""Subscription group settings."""
