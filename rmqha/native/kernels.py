"""Which of the compiled parts are used, and why another one is not. Decided once, at import.

An extension is used when it was compiled for this Python, is of this version, and has all its functions. Instead of any
other its twin in Python is, slower: the store logs that at its start, and `rmqha doctor` and bin/ensure-venv tell it.
"""
import importlib
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from rmqha.common.lazy_tuples import NamedTuple

VERSION = 8  # as in native.h
FOLDER = Path(__file__).parent
MEND = "with a C compiler there, install rmqha again"

log = logging.getLogger("RocketmqStore")

F = TypeVar("F", bound=Callable[..., Any])


class Kernel(NamedTuple):
    """A compiled part. `module` is None, and `reason` says why, where its twin works."""

    name: str
    module: ModuleType | None
    reason: str

    def function(self, name: str, twin: F) -> F:
        """The compiled function, or its twin, which does the same."""
        return twin if self.module is None else getattr(self.module, name)

    def told(self) -> str:
        """Which one works, for people."""
        return f"{self.name}: {'compiled' if self.module else f'pure Python, slower: {self.reason}'}"


def load(name: str, extension: str, functions: Iterable[str]) -> Kernel:
    """The kernel of an extension of this folder, which has to have `functions`."""
    try:
        module = importlib.import_module(f"rmqha.native.{extension}")
    except ModuleNotFoundError:
        if not FOLDER.is_dir():
            return Kernel(name, None, "nothing compiled can be loaded out of rmqha, which comes in a zip file")
        others = sorted(file.name for file in FOLDER.glob(f"{extension}.*") if file.suffix in (".so", ".pyd"))
        return Kernel(name, None, f"{', '.join(others)} is for another Python" if others
                      else "no C compiler was there when rmqha was installed")
    except (ImportError, SystemError) as error:
        return Kernel(name, None, str(error))
    version = getattr(module, "VERSION", None)
    if version != VERSION:
        return Kernel(name, None, f"{module.__file__} is of version {version}, not {VERSION}")
    missing = ", ".join(function for function in functions if not hasattr(module, function))
    return Kernel(name, None if missing else module, missing and f"{module.__file__} has no {missing}")


BULK = load("bulk kernel", "_bulk", ("walk", "scan", "put_keys"))
MESSAGE_ROWS = load("message rows", "_message_rows", ("records_of_rows",))
EXPRESS_SENDS = load("express sends", "_express_send", ("read_simple_sends", "json_answers"))
PROPERTIES = load("property columns", "_properties", ("property_columns",))
KERNELS = (BULK, MESSAGE_ROWS, EXPRESS_SENDS, PROPERTIES)


def are_all_compiled() -> bool:
    """Whether nothing is slower than it has to be."""
    return all(kernel.module for kernel in KERNELS)


def told() -> str:
    """Which of each works, and what to do about the slower ones."""
    return "; ".join([kernel.told() for kernel in KERNELS] + ([] if are_all_compiled() else [MEND]))


def log_choice() -> None:
    """Say at a start which of each works."""
    log.log(logging.INFO if are_all_compiled() else logging.WARNING, "%s", told())
