"""mqadmin: its sub-commands, by package as in the original, and what they share."""
