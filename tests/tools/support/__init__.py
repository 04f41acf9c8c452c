"""`rmqha support bundle`: secrets, sizes, hostile files, and a running cluster."""
