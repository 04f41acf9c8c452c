"""Hash index over message keys."""
