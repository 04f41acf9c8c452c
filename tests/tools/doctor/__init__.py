"""Tests of rmqha doctor."""
