"""The client instance."""
