"""What producers, consumers and admin calls have in common: one instance with its routes, connections and threads."""
