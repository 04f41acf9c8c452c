"""Commit logs and clusters as tables and streams of Apache Spark, and the jobs that work on them.

Needs the extra `spark`: pip install 'PATH-OR-URL[spark]', and Java 17.
"""
