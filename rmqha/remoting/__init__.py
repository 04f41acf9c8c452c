"""The transport: commands and their codecs, and a server and a client built on selectors."""
