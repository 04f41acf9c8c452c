"""Archives of commit logs as Parquet tables, and the way back, byte for byte."""
