"""Topic names: rules and system topics."""
