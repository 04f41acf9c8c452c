"""Which of two implementations is used."""
import importlib
from types import SimpleNamespace

import pytest

from rmqha.broker.processor import plain_send_answer, plain_sends
from rmqha.common import compiled
from rmqha.store import plain_records


@pytest.mark.parametrize("used, module, name, twin", [
    (plain_sends.read_plain_sends, plain_sends.COMPILED, "read_plain_sends", plain_sends.sends_in_python),
    (plain_send_answer._json_answers, plain_sends.COMPILED, "json_answers", plain_send_answer.json_in_python),
    (plain_records.plain_records, "rmqha.native._plain_records", "plain_records", plain_records.records_in_python),
], ids=["sends", "answers", "records"])
def test_compiled_one_is_used_where_there_is_one(used, module, name, twin):
    try:
        there = importlib.import_module(module)
    except ModuleNotFoundError:
        assert used is twin
    else:
        assert used is getattr(there, name)


@pytest.mark.parametrize("version, used", [(3, "compiled"), (2, "twin")])
def test_one_of_another_version_is_not_used(monkeypatch, version, used):
    monkeypatch.setattr(compiled.importlib, "import_module", lambda _: SimpleNamespace(VERSION=version, f="compiled"))
    assert compiled.compiled_or("twin", "any", "f", 3) == used


def test_twin_is_used_where_nothing_was_compiled():
    assert compiled.compiled_or("twin", "rmqha.common._no_such_module", "f", 1) == "twin"
