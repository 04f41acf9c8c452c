"""Subscription expressions."""
