"""Tests of `rmqha up`, `down`, `ps` and `logs`."""
