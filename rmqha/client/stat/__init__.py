"""What consumers count."""
