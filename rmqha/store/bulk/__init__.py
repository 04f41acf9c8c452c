"""Bulk operations on the commit log: one call for a whole span of records, compiled from C or else in Python."""
