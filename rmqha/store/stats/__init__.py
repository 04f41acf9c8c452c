"""What a broker counts: puts, gets, sizes, latencies."""
