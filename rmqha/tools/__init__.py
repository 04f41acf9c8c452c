"""Command line tools: they stand on the client and on the pure layouts, and talk to people."""
