"""Tests of rmqha.tools.console."""
