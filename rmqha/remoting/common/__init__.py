"""Small helpers of the transport."""
