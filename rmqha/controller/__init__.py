"""The controller of automatic failover: who is the master of each broker name, and who may become it."""
