"""The common base of producers, consumers and admin calls: an instance with its routes, connections and threads."""
