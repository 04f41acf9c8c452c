"""Tests of rmqha.tools.view."""
