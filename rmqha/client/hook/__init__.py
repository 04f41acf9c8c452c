"""What users may hang into sends, pulls, and calls of listeners."""
