"""What an expression is made of."""
