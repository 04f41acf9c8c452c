"""Request and response headers, by domain."""
