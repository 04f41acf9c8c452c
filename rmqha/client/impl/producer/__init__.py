"""The sending side: queue choice, retries, compression."""
