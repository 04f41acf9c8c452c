"""Tests of rmqha check."""
