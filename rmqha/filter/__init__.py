"""SQL92 expressions over message properties: parsed, evaluated, and remembered in bloom filters."""
