"""Commands that send, read and carry messages."""
