"""The connected clients: producers, consumers and their locks."""
