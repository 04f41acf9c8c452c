"""A broker whose role a controller decides."""
