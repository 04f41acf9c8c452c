"""What both sides of access control share: credentials, signatures, permissions, files."""
