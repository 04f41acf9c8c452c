"""Body compression."""
