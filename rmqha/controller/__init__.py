"""The controller of automatic failover: decides which replica of each broker name is the master."""
