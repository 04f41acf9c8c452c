"""Tests of the bulk kernel: both implementations are compared with the single-record path."""
