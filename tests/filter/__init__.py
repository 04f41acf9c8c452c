"""Tests of rmqha.filter."""
