"""Small helpers that stand in Java's common.utils."""
