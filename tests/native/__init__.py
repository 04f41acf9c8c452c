"""The compiled parts: how they are built, and which of them are used."""
