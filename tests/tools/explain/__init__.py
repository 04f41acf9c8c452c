"""`rmqha explain`: its tables against the sources, hostile lines, and summaries of logs."""
