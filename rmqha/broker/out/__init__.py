"""Calls from the broker to name servers and to its master."""
