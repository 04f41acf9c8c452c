"""Functions that remember their results."""
import functools
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def cached(function: F) -> F:
    """functools.cache for functions of classes: the checker holds `type[T]` for nothing that can be hashed."""
    return functools.cache(function)  # type: ignore[return-value]  # called as `function` is
