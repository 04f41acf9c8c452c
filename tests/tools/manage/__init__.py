"""Tests of the commands that manage topics, groups, settings, accounts and dead letters."""
