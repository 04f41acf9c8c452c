"""Measurements, run by hand: each prints a ratio to the real 4.9 measured in the same run.

RMQHA_BEFORE=<another checkout> compares with its broker in the place of the real one, to tell what a change costs. Its
servers run with the Python of its own `.venv`, which `bin/ensure-venv` makes there, with its compiled parts.
"""
import os

OTHER = "before" if os.environ.get("RMQHA_BEFORE") else "java"
KINDS = (OTHER, "rmqha")
