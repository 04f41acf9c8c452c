"""The compiled parts: small C sources, each with a twin in Python for installations without a C compiler."""
