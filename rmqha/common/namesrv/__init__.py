"""Name server models that brokers and clients share."""
