"""Consumer offsets: going back, skipping, copying."""
