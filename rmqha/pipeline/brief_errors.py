"""Errors that users read: Spark shows the traceback of what a data source raises before the error itself."""
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar, cast

from rmqha.pipeline.options import PipelineError

_P = ParamSpec("_P")
_R = TypeVar("_R")


def briefly(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """For what Spark calls, generators too: a PipelineError comes out of it without the way that it came, and without
    what it was made of. Other errors are left as they are.
    """
    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except PipelineError as error:
            raise error.with_traceback(None) from None

    @functools.wraps(function)
    def generator(*args: _P.args, **kwargs: _P.kwargs) -> Iterator[Any]:
        try:
            yield from cast(Iterator[Any], function(*args, **kwargs))
        except PipelineError as error:
            raise error.with_traceback(None) from None

    return cast(Callable[_P, _R], generator) if inspect.isgeneratorfunction(function) else call
