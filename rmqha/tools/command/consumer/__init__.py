"""Groups of consumers: settings, progress, what their clients do."""
