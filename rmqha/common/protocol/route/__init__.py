"""Topic routes."""
