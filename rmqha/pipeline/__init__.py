"""Commit logs and clusters as tables and streams of Apache Spark, and the jobs that work on them.

Needs the extra `spark` (see docs/spark/index.md for how to install it), and Java 17.
"""
