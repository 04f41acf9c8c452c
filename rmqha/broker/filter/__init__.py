"""Which messages a consumer wants."""
