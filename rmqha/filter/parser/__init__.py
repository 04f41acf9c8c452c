"""From text to expression."""
