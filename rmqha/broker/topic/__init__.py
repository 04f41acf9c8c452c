"""The broker's topics."""
