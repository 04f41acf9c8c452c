"""Measurements, run by hand (`python -m tests.bench.send`): each prints a ratio to the real 4.9 measured in the same run."""
