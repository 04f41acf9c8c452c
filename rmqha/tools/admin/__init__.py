"""What mqadmin asks of name servers and brokers."""
