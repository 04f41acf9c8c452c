"""Tests of the broker's processor."""
