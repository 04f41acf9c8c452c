"""Transactions over two topics: half messages, and op messages that tick them off."""
