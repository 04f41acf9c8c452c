"""Small shared values of the client."""
