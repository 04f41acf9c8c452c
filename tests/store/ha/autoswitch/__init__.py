"""Tests of replication whose roles change."""
