"""Who is connected: producers, consumers, their locks."""
