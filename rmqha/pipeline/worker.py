"""The Python process of Spark in which tasks run, one after another."""
import gc
import sys

_modules = 0  # that were imported when they were left out last


def settle() -> None:
    """To be called when a task begins: leaves what was imported out of all garbage collections to come.

    Spark has each worker collect garbage behind each task, and the next one waits. With PyArrow, NumPy and the rest
    that takes 15 ms and more, however little the tasks do.
    """
    global _modules
    if len(sys.modules) > _modules:
        gc.collect()
        gc.freeze()
        _modules = len(sys.modules)
