"""Measurements, run by hand: each prints a ratio to the real 4.9 measured in the same run."""
