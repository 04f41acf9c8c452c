"""The compiled parts: small C sources, each with a twin in Python, which does the same where no C compiler was."""
