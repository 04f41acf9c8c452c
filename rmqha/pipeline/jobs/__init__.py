"""Jobs over whole stores: audits, rebuilt queues and indexes, reports."""
