"""The depth limit of JSON texts is counted by our own code, so every Python reads and refuses the same texts."""
import glob
import json
import os
import shutil
import struct
import subprocess
import sys
import threading

import pytest

from rmqha.remoting.exception import RemotingCommandException
from rmqha.remoting.protocol import fastjson, remoting_command
from rmqha.remoting.protocol.fastjson import MAX_DEPTH, MAX_DEPTH_OF_REFERENCES, MAX_WRITTEN_DEPTH
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from tests.support.sources import ROOT

# Name -> a function that makes the text with a given number of levels
NESTED = {
    "lists": lambda depth: "[" * depth + "]" * depth,
    "objects": lambda depth: '{"a":' * (depth - 1) + "{}" + "}" * (depth - 1),
    "objects in the dialect": lambda depth: "{a:" * (depth - 1) + "{}" + "}" * (depth - 1),
    "keys": lambda depth: "{" * depth + "a" + ":1}" * depth,
    "lists that are keys": lambda depth: "{[" * (depth // 2) + "2" + "]:1}" * (depth // 2),
    "values in keys": lambda depth: "{" + "{a:" * (depth - 2) + "{}" + "}" * (depth - 2) + ":1}",
}
DEPTHS = (2, 100, 128, 130, 250, 256, 258, 400, 480, 510, 512, 514, 600, 900, 1000, 1100, 3000, 20_000)


def _outcome(work) -> str:
    try:
        work()
    except (ValueError, RemotingCommandException):
        return "refused"
    return "read"


def _decode(header: str) -> RemotingCommand:
    data = header.encode()
    return RemotingCommand.decode(struct.pack(">I", len(data)) + data)


def outcomes() -> dict[str, list[str]]:
    """Return the outcome of each text at each depth, in each place."""
    places = {
        "value": fastjson.loads,
        "value that is written again": lambda text: fastjson.dumps(fastjson.loads(text)),
        "value with a reference": lambda text: fastjson.loads(f'{{"a":{text},"b":{{"$ref":"$.a"}}}}'),
        "value with half of a surrogate pair": lambda text: fastjson.loads(f'[{text},"\\ud800"]'),
        "remark": lambda text: _decode(f'{{"remark":{text}}}'),
        "field": lambda text: _decode(f'{{"extFields":{{"a":{text}}}}}'),
        "unknown field": lambda text: _decode(f'{{"x":{text}}}'),
    }
    return {f"{name}, {place}": [_outcome(lambda: read(make(depth))) for depth in DEPTHS]
            for name, make in NESTED.items() for place, read in places.items()}


def most_that_is_read(found: list[str]) -> int:
    """Return the depth up to which everything is read and beyond which nothing is."""
    count = found.count("read")
    assert found == ["read"] * count + ["refused"] * (len(found) - count)
    return DEPTHS[count - 1] if count else 0


@pytest.mark.parametrize("orjson", [True, False], ids=["orjson", "library"])
def test_depth_is_bounded_by_our_own_count(orjson, monkeypatch):
    if not orjson:
        monkeypatch.setattr(remoting_command, "orjson", None)
    for name, found in outcomes().items():
        most = most_that_is_read(found)
        if name.endswith(", value"):
            assert most == MAX_DEPTH, name
        elif "written" in name or "remark" in name or name.endswith(", field"):
            assert most == MAX_WRITTEN_DEPTH, name
        elif "reference" in name:
            # Keys hold no reference; the object takes a level.
            assert most == (MAX_DEPTH - 2 if "key" in name else 100), name
        else:
            assert most == MAX_DEPTH - 2, name
    assert MAX_DEPTH_OF_REFERENCES == 128


def test_depth_limit_is_the_same_deep_in_a_stack():
    def below(levels: int) -> dict[str, list[str]]:
        return outcomes() if levels == 0 else below(levels - 1)
    found = []
    thread = threading.Thread(target=lambda: found.append(below(150)))
    thread.start()
    thread.join(300)
    assert found == [outcomes()]


def _python(version: str) -> str | None:
    """Return a working Python of this version, from PATH or pyenv."""
    paths = [shutil.which(f"python{version}"),
             *sorted(glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python{version}")))]
    works = [path for path in paths if path is not None and subprocess.run(
        [path, "-c", ""], capture_output=True, check=False).returncode == 0]
    return works[-1] if works else None


OTHERS = [version for version in ("3.11", "3.12", "3.13", "3.14")
          if version != f"{sys.version_info[0]}.{sys.version_info[1]}"]


@pytest.mark.parametrize("version", OTHERS)
def test_other_python_versions_read_and_refuse_the_same(version):
    python = _python(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    script = ("import sys, json, types; sys.modules['pytest'] = types.SimpleNamespace("
              "mark=types.SimpleNamespace(parametrize=lambda *_a, **_k: lambda test: test));"
              "from tests.remoting.protocol.test_depth import outcomes; print(json.dumps(outcomes()))")
    told = subprocess.run([python, "-c", script], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
                          capture_output=True, timeout=600, check=False)
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout) == outcomes()
