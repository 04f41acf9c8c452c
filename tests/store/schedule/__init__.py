"""Tests of delayed messages."""
