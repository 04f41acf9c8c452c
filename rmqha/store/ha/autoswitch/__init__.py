"""Replication with roles that can change: epochs, truncation to the consistent point, the set of in-sync replicas."""
