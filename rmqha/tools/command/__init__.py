"""mqadmin: its sub-commands and the code they share."""
