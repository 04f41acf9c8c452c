"""Headers of the retired filter server, kept for their codes."""
