"""Accounts of brokers."""
