"""Tests of rmqha.tools."""
