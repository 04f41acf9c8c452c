"""Tests of rmqha.tools.top."""
