"""Helpers of the store that stand on the operating system."""
