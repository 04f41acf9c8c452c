"""Tests of replication with role changes."""
