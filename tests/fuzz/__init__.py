"""Broken input by the hundred thousand: each run is told its seed, and can be repeated."""
