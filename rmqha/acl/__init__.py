"""Access control by accounts in YAML files, and the signing of a client's requests."""
