"""Who is connected."""
