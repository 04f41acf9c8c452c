"""Snapshots of a running cluster and their changes, the basis of `rmqha top` and `rmqha console`."""
