"""Tests of the broker's longpolling."""
