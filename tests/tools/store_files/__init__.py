"""Tests of the commands that read and repair store files."""
