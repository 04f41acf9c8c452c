"""Tests of the broker's client."""
