"""The log as an archive of tables, and back, byte for byte."""
