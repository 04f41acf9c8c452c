"""Topics: making, changing, looking at them."""
