"""Tests of the way of a send."""
