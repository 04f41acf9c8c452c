"""Tests of rmqha ha."""
