"""mqadmin's commands about replication."""
