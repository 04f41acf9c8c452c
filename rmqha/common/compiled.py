"""Functions that have two implementations: compiled, where a C compiler was at the install, and in Python."""
import importlib
from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable)


def compiled_or(twin: F, module: str, name: str, version: int) -> F:
    """The function `name` of a compiled module; `twin`, which does the same, slower, where there is none.

    Or where its VERSION is another one: it was not compiled again with the sources.
    """
    try:
        compiled = importlib.import_module(module)
    except ImportError:
        return twin
    return getattr(compiled, name) if compiled.VERSION == version else twin
