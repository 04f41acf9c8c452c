"""The tools say the same of a store whether they take its records one by one or many at once, with either kernel."""
import random

import pytest

from rmqha.store.bulk import bulk, bulk_python
from rmqha.tools.store_files import builders, reading
from rmqha.tools.store_files.rebuild import Rebuild
from rmqha.tools.store_files.verify import LogCheck
from tests.store.bulk.test_bulk import compiled_kernel
from tests.store.support import tree

STORES = ("own", "crashed", "normal", "kill")
WAYS = ("single", "plain", "compiled")
COMMANDS = (("verify", "--all"), ("verify",), ("rebuild", "--skip-damage"), ("rebuild",))


def choose(monkeypatch, way, block=3000):
    """Small blocks; one by one, or at once."""
    monkeypatch.setattr(reading, "BLOCK", block)
    monkeypatch.setattr(builders, "_WINDOW", 70)
    monkeypatch.setattr(bulk, "_kernel", compiled_kernel() if way == "compiled" else bulk_python)
    monkeypatch.setattr(bulk, "is_compiled", lambda: way != "single")


def damage(root, random_):
    """Change some bytes somewhere in what is written."""
    files = [path for path in sorted(root.rglob("0" * 10 + "*")) + sorted((root / "index").iterdir()) if path.is_file()]
    for _ in range(random_.randrange(1, 4)):
        path = random_.choice(files)
        data = bytearray(path.read_bytes())
        end = max(len(data.rstrip(b"\0")), 1)
        at = random_.randrange(end)
        data[at:at + random_.choice((1, 4, 30))] = random_.randbytes(random_.choice((1, 4, 30)))
        path.write_bytes(data[:path.stat().st_size].ljust(path.stat().st_size, b"\0"))


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("seed", range(5))
def test_each_way_finds_the_same(run, copy, monkeypatch, name, seed):
    root = copy(name)
    if seed:
        damage(root, random.Random(f"{name}{seed}"))
    for command in COMMANDS:
        answers = []
        for way in WAYS:
            choose(monkeypatch, way, 3000 if seed % 2 else 1 << 20)
            answers.append(run(*command[:1], root, *command[1:], "-o", "json")[:2])
        assert answers[1] == answers[0] and answers[2] == answers[0], command


@pytest.mark.parametrize("name", STORES)
def test_each_way_writes_the_same(run, copy, tmp_path, monkeypatch, name):
    root = copy(name)
    written = []
    for way in WAYS:
        choose(monkeypatch, way)
        assert run("rebuild", root, "--apply", "--out", tmp_path / way)[0] == 0
        files = tree(tmp_path / way)
        written.append(({path: data for path, data in files.items() if path.startswith("consumequeue")},
                        [data for path, data in sorted(files.items()) if path.startswith("index")]))
    assert written[1] == written[0] and written[2] == written[0]


@pytest.mark.parametrize("way", WAYS[1:])
def test_most_records_of_a_good_store_are_taken_at_once(run_json, copy, monkeypatch, way):
    choose(monkeypatch, way)
    single = []
    for owner, method in ((Rebuild, "_record"), (LogCheck, "_record")):
        original = getattr(owner, method)
        monkeypatch.setattr(owner, method, lambda *args, original=original: (single.append(args), original(*args))[1])
    root = copy("own")
    found = run_json("verify", root)[1]
    assert found["clean"] and len(single) < found["records"] / 2
    single.clear()
    found = run_json("rebuild", root)[1]
    assert found["equal"] and len(single) < found["records"] / 2


def test_index_check_goes_back_when_entries_differ(run_json, copy, monkeypatch):
    root = copy("own")
    choose(monkeypatch, "single")
    before = run_json("verify", root, "--all")[1]
    index = max((root / "index").iterdir())
    data = bytearray(index.read_bytes())
    end = len(data.rstrip(b"\0"))
    data[end - 8] ^= 1
    index.write_bytes(data)
    answers = []
    for way in WAYS:
        choose(monkeypatch, way)
        answers.append(run_json("verify", root, "--all"))
    assert answers[0][0] == 1 and answers[0][1] != before and answers[1] == answers[0] and answers[2] == answers[0]
