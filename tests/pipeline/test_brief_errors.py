"""What users read of an error: Spark prints the whole traceback of a data source before it."""
import traceback

import pytest

from rmqha.pipeline.format_options import PipelineError
from rmqha.pipeline.worker import briefly


def _deep(error, depth=20):
    if depth:
        _deep(error, depth - 1)
    try:
        raise KeyError("what it was made of")
    except KeyError as cause:
        raise error from cause


@briefly
def _asked(error):
    _deep(error)


@briefly
def _read(error):
    yield 1
    _deep(error)


@pytest.mark.parametrize("run", [_asked, lambda error: list(_read(error))])
def test_a_pipeline_error_is_told_without_the_way_it_came(run):
    with pytest.raises(PipelineError) as raised:
        run(PipelineError("what is wrong"))
    printed = "".join(traceback.format_exception(raised.value))
    assert "_deep" not in printed and "KeyError" not in printed
    assert printed.splitlines()[-1].endswith("PipelineError: what is wrong")
    with pytest.raises(RuntimeError) as raised:
        run(RuntimeError("a fault"))
    printed = "".join(traceback.format_exception(raised.value))
    assert "_deep" in printed and "KeyError" in printed


def test_what_comes_before_the_error_is_given():
    items = _read(PipelineError("later"))
    assert next(items) == 1
    with pytest.raises(PipelineError, match="later"):
        next(items)
