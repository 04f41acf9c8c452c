"""Tests of the commands that send, read, export and import messages."""
