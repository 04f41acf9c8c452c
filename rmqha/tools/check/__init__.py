"""Checks for monitoring, with exit codes: `rmqha check`."""
