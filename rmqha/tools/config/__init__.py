"""The meaning of config keys, and checks of config files."""
