"""What answers the requests to a name server."""
