"""Config JSON: always the old or the new state, and loud when neither is readable."""
import json
import os

import pytest

from rmqha.common.config_manager import ConfigManager


class Table(ConfigManager):
    """A dict in a file."""

    def __init__(self, path):
        self.path = str(path)
        self.table = {}

    def config_file_path(self):
        return self.path

    def encode(self, pretty_format=False):
        return json.dumps(self.table)

    def decode(self, json_string):
        self.table = json.loads(json_string)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "config" / "topics.json"


def persisted(file, *states):
    table = Table(file)
    for state in states:
        table.table = state
        assert table.persist()
    return table


def test_no_file_is_an_empty_state(file):
    assert Table(file).load()


def test_state_is_loaded_again(file):
    persisted(file, {"a": 1}, {"a": 2})
    table = Table(file)
    assert table.load() and table.table == {"a": 2}


@pytest.mark.parametrize("content", [b"", b'{"a":', b"\xff\xfe", None], ids=["empty", "cut", "not UTF-8", "missing"])
def test_unusable_file_falls_back_to_the_backup(file, content):
    persisted(file, {"a": 1}, {"a": 2})
    os.remove(file)
    if content is not None:
        file.write_bytes(content)
    table = Table(file)
    assert table.load() and table.table == {"a": 1}


@pytest.mark.parametrize("content", [b"", b'{"a":'])
@pytest.mark.parametrize("backup", [b"", b"{", None])
def test_nothing_readable_is_not_an_empty_state(file, caplog, content, backup):
    file.parent.mkdir()
    file.write_bytes(content)
    if backup is not None:
        file.with_name("topics.json.bak").write_bytes(backup)
    assert not Table(file).load()
    assert "neither it nor its backup file is usable" in caplog.text


def test_refusing_disk_is_logged_and_keeps_the_old_state(file, monkeypatch, caplog):
    table = persisted(file, {"a": 1})

    def fail(*_):
        raise OSError(5, "Input/output error")
    monkeypatch.setattr(os, "fsync", fail)
    table.table = {"a": 2}
    assert not table.persist()
    assert "exception" in caplog.text and json.loads(file.read_text()) == {"a": 1}


def test_no_json_saves_nothing(file):
    table = Table(file)
    table.encode = lambda pretty_format=False: None
    assert table.persist() and not file.exists()
