"""Access control: who may do what, from accounts in YAML files; and the signing of a client's requests."""
