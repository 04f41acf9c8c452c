"""Bits of the flag fields."""
