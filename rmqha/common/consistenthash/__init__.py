"""Nodes and keys on a ring of hash values."""
