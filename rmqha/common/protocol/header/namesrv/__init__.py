"""Headers of the name server's requests."""
