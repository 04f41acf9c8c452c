"""The kernels: for each compiled part, the extension or its twin in Python. Chosen once, at import.

Kernels and twins
-----------------
A few functions run for every message: walking over records, encoding them, reading simple sends, splitting properties.
They are written in C, but rmqha must also install where no C compiler is available. So each has a twin in Python, and
every caller gets one of the two through this module. The two must be interchangeable: a store that was written by one
is continued by the other after a reinstallation, and a master with kernels replicates to a slave without. A difference
of one byte would be a difference between replicas. What keeps them equal:

- Both take the same arguments and return the same results. I/O, locks and decisions stay in their callers.
- The kernels that read untrusted bytes (records, sends) process only common input. Before anything unusual they stop,
  and the general way, which exists only once, in Python, takes over.
- The twin is the reference. It is short and documents the function; tests compare the two, result by result, on random
  and on damaged input (tests/fuzz/test_native_twins.py).
- An extension is used only if it was compiled for this Python, is of this VERSION, and has all its functions. After an
  update without a rebuild, an old extension with other arguments or rows would otherwise return wrong results or crash.

The twins are slower. The store logs at its start that they are used, and `rmqha doctor` and bin/ensure-venv report it.
"""
import importlib
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from rmqha.common.lazy_tuples import NamedTuple

VERSION = 8  # the same as in native.h
FOLDER = Path(__file__).parent
MEND = "install a C compiler, then reinstall rmqha"

log = logging.getLogger("RocketmqStore")

F = TypeVar("F", bound=Callable[..., Any])


class Kernel(NamedTuple):
    """A compiled part: its `module`, or the `reason` why its twin is used instead."""

    name: str
    module: ModuleType | None
    reason: str

    def function(self, name: str, twin: F) -> F:
        """Return the compiled function, or its equivalent twin."""
        return twin if self.module is None else getattr(self.module, name)

    def told(self) -> str:
        """Return a text that says which of the two is used."""
        return f"{self.name}: {'compiled' if self.module else f'pure Python, slower: {self.reason}'}"


def load(name: str, extension: str, functions: Iterable[str]) -> Kernel:
    """Return the kernel for an extension in this folder, which must have `functions`."""
    try:
        module = importlib.import_module(f"rmqha.native.{extension}")
    except ModuleNotFoundError:
        if not FOLDER.is_dir():
            return Kernel(name, None, "rmqha is in a zip file, from which compiled parts can't be loaded")
        others = sorted(file.name for file in FOLDER.glob(f"{extension}.*") if file.suffix in (".so", ".pyd"))
        return Kernel(name, None, f"{', '.join(others)} is for another Python" if others
                      else "no C compiler was available when rmqha was installed")
    except (ImportError, SystemError) as error:
        return Kernel(name, None, str(error))
    version = getattr(module, "VERSION", None)
    if version != VERSION:
        return Kernel(name, None, f"{module.__file__} has version {version}, not {VERSION}")
    missing = ", ".join(function for function in functions if not hasattr(module, function))
    return Kernel(name, None if missing else module, missing and f"{module.__file__} has no {missing}")


BULK = load("bulk kernel", "_bulk", ("walk", "scan", "put_keys"))
MESSAGE_ROWS = load("message rows", "_message_rows", ("records_of_rows",))
EXPRESS_SENDS = load("express sends", "_express_send", ("read_simple_sends", "json_answers"))
PROPERTIES = load("property columns", "_properties", ("property_columns",))
KERNELS = (BULK, MESSAGE_ROWS, EXPRESS_SENDS, PROPERTIES)


def are_all_compiled() -> bool:
    """Return whether all kernels are compiled."""
    return all(kernel.module for kernel in KERNELS)


def told() -> str:
    """Return a text that says which of each is used, and what to do about the slower ones."""
    return "; ".join([kernel.told() for kernel in KERNELS] + ([] if are_all_compiled() else [MEND]))


def log_choice() -> None:
    """Log which of each is used."""
    log.log(logging.INFO if are_all_compiled() else logging.WARNING, "%s", told())
