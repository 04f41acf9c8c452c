"""Name servers: their table, settings, write permissions."""
