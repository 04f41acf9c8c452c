"""JSON bodies, by domain."""
