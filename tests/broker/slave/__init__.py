"""Tests of the copies that a slave takes."""
