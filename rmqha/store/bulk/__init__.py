"""Bulk work on the commit log: one call for a whole span of records, in C where it was compiled, else in Python."""
