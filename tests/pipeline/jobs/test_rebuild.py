"""The job rebuild: its files are those that the brokers, the real one and rmqha's, wrote themselves."""
from pathlib import Path

import pytest

from rmqha.pipeline.jobs.rebuild import Shape, common_queue_file_size, parse_delays, rebuild
from tests.store import support

SHAPE = {"slots": 50, "entries": 200}


def shape_of(root: Path, **more) -> Shape:
    sizes = {"queue_file_size": common_queue_file_size(str(root)), **SHAPE, "delays_ms": parse_delays()}
    return Shape(**{**sizes, **more})


def files(folder: Path) -> list[bytes]:
    """The contents of the files in a folder that were used, by name."""
    return [path.read_bytes() for path in sorted(folder.iterdir()) if any(path.read_bytes()[:36])]


@pytest.mark.parametrize("name", ["normal", "kill"])
def test_queues_and_index_are_the_real_brokers(spark, tmp_path, name):
    root = support.unpack_golden(name, tmp_path)
    result = rebuild(spark, str(root), str(tmp_path / "out"), shape_of(root))
    built = support.tree(tmp_path / "out" / "consumequeue")
    assert built == support.tree(root / "consumequeue") and len(built) > 6
    assert files(tmp_path / "out" / "index") == files(root / "index") and result.indexFiles > 1
    assert (result.equal, result.differences, result.problems) == (True, [], [])


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("rebuild") / "store"
    with support.open_store(root, mappedFileSizeCommitLog=1 << 18) as running:
        for number in range(900):
            support.put(running, support.message(f"T{number % 3}", number // 3 % 2, b"x" * (number % 400),
                                                 KEYS=f"k{number} all", UNIQ_KEY=f"U{number}", TAGS=f"t{number % 5}"))
        support.wait_dispatched(running)
    return root


def test_ranges_that_begin_within_records_and_shares_of_index_files_give_the_same_files(spark, store, tmp_path,
                                                                                      monkeypatch):
    from rmqha.pipeline.jobs import index_parts
    from rmqha.pipeline.log import ranges
    monkeypatch.setattr(index_parts, "SHARE", 60)  # of files of 199 keys
    monkeypatch.setattr(ranges, "UNCUT_END", 4096)
    result = rebuild(spark, str(store), str(tmp_path / "out"), shape_of(store), range_bytes=40_000)
    assert result.equal and result.records == result.units == 900 and result.keys == 2700
    assert support.tree(tmp_path / "out" / "consumequeue") == support.tree(store / "consumequeue")
    assert files(tmp_path / "out" / "index") == files(store / "index")


def test_messages_of_deleted_topics_get_no_units(spark, tmp_path):
    with support.open_store(tmp_path / "store") as running:
        for count in (60, 20):
            support.put(running, *[support.message(queue_id=number % 2) for number in range(count)])
            support.put(running, support.message("O"))
            if count == 60:
                running.delete_topic("T")
        support.wait_dispatched(running)
    root = tmp_path / "store"
    result = rebuild(spark, str(root), str(tmp_path / "out"), shape_of(root), compare=False)
    assert (result.records, result.units, result.problems) == (82, 22, [])
    assert support.tree(tmp_path / "out" / "consumequeue") == support.tree(root / "consumequeue")


def test_what_differs_in_the_store_is_named(spark, store, tmp_path):
    import shutil
    root = tmp_path / "copy"
    shutil.copytree(store, root)
    path = sorted((root / "consumequeue" / "T1" / "0").iterdir())[1]
    data = bytearray(path.read_bytes())
    data[47] ^= 1
    path.write_bytes(data)
    result = rebuild(spark, str(root), str(tmp_path / "out"), shape_of(root))
    assert (result.equal, result.differences) == (False, [f"{path} differs from what was built at byte 47"])


def test_files_in_the_way_are_never_overwritten(spark, store):
    with pytest.raises(ValueError, match="has files already"):
        rebuild(spark, str(store), str(store), shape_of(store))


def test_stretches_of_neighbouring_ranges_join_in_whatever_order_they_come():
    from itertools import permutations

    from rmqha.pipeline.jobs.rebuild import Built, Stretch
    ranges = [Built(1, {("T", 0): [Stretch(number, first, 10)]}, {number: 1})
              for number, first in enumerate((5, 15, 25, 50, 60))]
    for order in permutations(range(5)):
        built = Built()
        for number in order:
            built.add(Built(1, {name: list(found) for name, found in ranges[number].queues.items()}, {number: 1}))
        assert built.queues == {("T", 0): [Stretch(0, 5, 30), Stretch(3, 50, 20)]} and built.records == 5
        assert sorted(built.keys) == [0, 1, 2, 3, 4]


def test_problems_beyond_a_thousand_are_counted(monkeypatch):
    from rmqha.pipeline.jobs import audit as audit_module
    from rmqha.pipeline.jobs import rebuild as rebuild_module
    many = rebuild_module.Built()
    for number in range(3000):
        many.add(rebuild_module.Built(problems=[(2999 - number, "x")]))
    assert (len(many.problems), many.more_problems, many.problems[0]) == (1000, 2000, (0, "x"))
    audited = audit_module.RangeAudit()
    for _ in range(3):
        audited.add(audit_module.RangeAudit(bad=["x"] * 700))
    assert (len(audited.bad), audited.more_bad) == (1000, 1100)


def test_a_queue_that_begins_within_a_file_is_filled_in_tasks_too(spark, store, tmp_path, monkeypatch):
    import shutil

    from rmqha.pipeline.jobs import rebuild as rebuild_module
    root = tmp_path / "deleted"
    shutil.copytree(store, root)
    first = sorted((root / "commitlog").iterdir())[0]
    first.unlink()
    shape = shape_of(root, queue_file_size=20 * 1000)
    results = []
    for units, name in ((1 << 20, "driver"), (0, "tasks")):
        monkeypatch.setattr(rebuild_module, "_BLANKS_OF_DRIVER", units)
        results.append(rebuild(spark, str(root), str(tmp_path / name), shape, compare=False))
    assert results[0].units == results[1].units < 900
    trees = [support.tree(tmp_path / name / "consumequeue") for name in ("driver", "tasks")]
    assert trees[0] == trees[1] and len(trees[0]) == 6
