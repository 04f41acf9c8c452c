"""Small values that admin calls give back."""
