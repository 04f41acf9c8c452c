"""Bodies of admin answers about offsets."""
