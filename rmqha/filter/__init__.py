"""SQL92 expressions over message properties: parsing, evaluation, and bloom filters that store their results."""
