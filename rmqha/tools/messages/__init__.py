"""Messages on the command line: produce, consume, tail, export, import, bench."""
