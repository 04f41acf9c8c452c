"""What config keys mean, and whether a config file is right."""
