"""Where a consumer starts."""
