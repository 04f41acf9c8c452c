"""mqadmin's commands about the controller of automatic failover."""
