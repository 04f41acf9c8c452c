"""Tests of master-slave replication."""
