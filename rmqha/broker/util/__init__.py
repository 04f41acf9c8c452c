"""Small helpers of the broker."""
