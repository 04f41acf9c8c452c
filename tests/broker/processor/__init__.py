"""Tests of the broker's request processors."""
