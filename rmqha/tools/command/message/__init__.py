"""Messages: looking them up, printing, sending and consuming them."""
