"""Tests of the admin client."""
