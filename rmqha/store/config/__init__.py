"""Configuration of the message store."""
