"""Benchmarks, run by hand: each prints a ratio to the real 4.9 measured in the same run.

RMQHA_BEFORE=<another checkout> compares with its broker instead of the real one, to show what a change costs. Its
servers run with the Python of its own `.venv`, which `bin/ensure-venv` creates there, and with its compiled parts.

Each server is started as users start it. Tests, which fork their servers from a warm process, use only made_store from
here.
"""
import os
import sys

from tests.support import warm

if "pytest" not in sys.modules:
    warm.switch_off()

OTHER = "before" if os.environ.get("RMQHA_BEFORE") else "java"
KINDS = (OTHER, "rmqha")
