"""store rebuild: what it writes is byte for byte what the broker wrote."""
import shutil
from types import SimpleNamespace

import pytest

from rmqha.store.index.index_file import Shape
from rmqha.tools.store_files import builders, rebuild
from rmqha.tools.store_files.readers import IndexReader, StoreReader
from tests.store.support import describe, message, open_store, put, tree, wait_dispatched
from tests.tools.store_files.test_verify import damage_index_slot, damage_unit_tags, place, poke, records

STORES = ["own", "crashed", "normal", "kill"]


def part(root, folder):
    """Path -> bytes of a folder."""
    return {path: data for path, data in tree(root).items() if path.startswith(f"{folder}/")}


def index(root):
    """The bytes of the index files that have entries, in order; their names are times."""
    return [data for _, data in sorted(part(root, "index").items()) if data[36:40] != bytes(4)]


@pytest.mark.parametrize("name", STORES)
def test_dry_run_finds_what_is_there_equal_and_writes_nothing(run_json, copy, name):
    root = copy(name)
    before = tree(root)
    code, found = run_json("rebuild", root)
    assert (code, found["equal"], found["problems"]) == (0, True, [])
    assert found["records"] == len(records(root)) and found["index"]
    assert tree(root) == before


@pytest.mark.parametrize("small", [20, 1 << 16])
@pytest.mark.parametrize("name", STORES)
def test_written_files_are_byte_identical(run, copy, tmp_path, monkeypatch, name, small):
    monkeypatch.setattr(rebuild, "_MAX_BUFFER", small)
    monkeypatch.setattr(builders, "_WINDOW", small // 20)
    monkeypatch.setattr(builders, "_ROWS_AT_ONCE", small)
    root = copy(name)
    assert run("rebuild", root, "--apply", "--out", tmp_path / "out")[0] == 0
    assert part(tmp_path / "out", "consumequeue") == part(root, "consumequeue")
    assert index(tmp_path / "out") == index(root)
    assert {path.split("/")[0] for path in tree(tmp_path / "out")} == {"consumequeue", "index"}


def test_lost_queues_and_index_come_back_in_place(run, copy):
    root = copy("normal")
    before = part(root, "consumequeue"), index(root)
    for folder in ("consumequeue", "index"):
        shutil.rmtree(root / folder)
    assert run("rebuild", root, "--index-slots", 50, "--index-entries", 200, "--consume-queue-file-size", 1000)[0] == 1
    code, _, _ = run("rebuild", root, "--apply", "--index-slots", 50, "--index-entries", 200,
                     "--consume-queue-file-size", 1000)
    assert code == 0 and (part(root, "consumequeue"), index(root)) == before
    assert run("verify", root)[0] == 0
    with open_store(root) as store:
        assert len(describe(store)) > 200


@pytest.mark.parametrize("with_marks", [True, False], ids=["with marks", "without"])
def test_topic_made_again_has_only_what_was_put_since(run, tmp_path, with_marks):
    root = tmp_path / "store"
    with open_store(root) as store:
        for generation in range(3):
            put(store, *[message(queue_id=number % 2, KEYS=f"k{number}") for number in range(80 - 30 * generation)])
            put(store, message("O"))
            if generation < 2:
                store.delete_topic("T")
        wait_dispatched(store)
        if with_marks:
            put(store, message("Gone"))
            store.delete_topic("Gone")
    before = part(root, "consumequeue")
    if not with_marks:
        (root / "config" / "deletedTopics.json").unlink()
    assert run("rebuild", root)[0] == 0
    assert run("verify", root)[0] == (0 if with_marks else 1)  # 4.9 has no marks, and its tools see a flaw
    assert run("rebuild", root, "--apply", "--force")[0] == 0
    assert part(root, "consumequeue") == before


def test_flipped_index_zero_does_not_begin_a_queue_anew():
    built = bytearray()
    sink = SimpleNamespace(units=lambda index, data: built.extend(data), finish=lambda end: None,
                           begin_anew=built.clear)
    builder = builders.QueueBuilder(sink, 200, 20, max_gap=10)
    told = [builder.put(index, bytes([number]) * 20) for number, index in enumerate((0, 1, 2, 0, 4, 5))]
    builder.finish()
    assert bytes(built[::20]) == bytes(range(6)) and builder.units == builder.next_index == 6
    assert [number for number, problem in enumerate(told) if problem] == [4]


def test_existing_files_are_kept_unless_forced_and_then_moved_aside(run, copy):
    root = copy("own")
    file, _, _ = damage_unit_tags(root)
    before = tree(root)
    code, _, err = run("rebuild", root, "--apply")
    assert code == 2 and "--force" in err and tree(root) == before
    code, out, _ = run("rebuild", root, "--apply", "--force")
    assert code == 0 and run("verify", root)[0] == 0
    aside = [path for path in root.iterdir() if ".before-" in path.name]
    assert len(aside) == 2 and all(str(path) in out for path in aside)
    assert (next(path for path in aside if path.name.startswith("consume")) / file.relative_to(root / "consumequeue")
            ).read_bytes() == before[str(file.relative_to(root))]


def test_running_broker_is_left_alone(run, tmp_path):
    root = tmp_path / "s"
    with open_store(root) as store:
        put(store, *(message(KEYS="k") for _ in range(5)))
        wait_dispatched(store)
        for arguments in (["--apply"], ["--apply", "--force"], ["--apply", "--force", "--out", root]):
            code, _, err = run("rebuild", root, *arguments)
            assert code == 2 and "broker runs" in err
        assert run("rebuild", root, "--apply", "--out", tmp_path / "out")[0] == 0
        assert part(tmp_path / "out", "consumequeue") == part(root, "consumequeue")
        put(store, message())


@pytest.mark.parametrize("damage, words", [(damage_unit_tags, "different from index 1"),
                                           (damage_index_slot, "different in the slots")])
def test_dry_run_tells_what_differs(run, copy, damage, words):
    root = copy("own")
    damage(root)
    code, out, _ = run("rebuild", root)
    assert code == 1 and words in out and "--apply" in out


def test_damaged_log_is_refused_unless_told_to_skip(run, run_json, copy, tmp_path):
    root = copy("own")
    record = next(each for each in records(root)[20:] if each.topic == "TopicA" and not each.sys_flag & 0xC)
    poke(place(root, record)[0], place(root, record)[1] + 4, bytes(4))
    code, _, err = run("rebuild", root)
    assert code == 2 and "--skip-damage" in err
    code, found = run_json("rebuild", root, "--skip-damage", "--apply", "--out", tmp_path / "out")
    assert code == 1 and len(found["problems"]) == 2  # the place, and the index that is missing in a queue
    old, new = part(root, "consumequeue"), part(tmp_path / "out", "consumequeue")
    assert old.keys() == new.keys()
    assert sum(old[path] != new[path] for path in old) == 1


def test_what_a_topic_is_called_can_not_lead_out_of_the_folder(copy, tmp_path):
    from rmqha.tools.terminal import CannotAnswerError
    work = rebuild.Rebuild(StoreReader(str(copy("own"))), str(tmp_path / "out"))
    for topic in ("..", "a/b", ""):
        with pytest.raises(CannotAnswerError):
            work._queue_sink((topic, 0))


class Collected:
    """A sink that keeps everything."""

    def __init__(self):
        self.data = {}
        self.end = None

    def units(self, index, data):
        """Keep units."""
        for at in range(0, len(data), 20):
            self.data[index + at // 20] = data[at:at + 20]

    def finish(self, end_index):
        """Keep the end."""
        self.end = end_index


def test_indices_that_jump_fill_blanks_and_absurd_ones_are_left_out():
    sink = Collected()
    builder = builders.QueueBuilder(sink, 200, 40, max_gap=10)
    unit = bytes(range(20))
    assert builder.put(-3, unit) is not None
    assert builder.put(12, unit) is None
    assert builder.put(13, unit) is None
    assert "follows" in builder.put(16, unit)
    assert "left out" in builder.put(5, unit)
    assert "left out" in builder.put(1 << 60, unit)
    builder.finish()
    assert sorted(sink.data) == [10, 11, 12, 13, 14, 15, 16] and sink.end == 17
    assert [index for index, data in sorted(sink.data.items()) if data == unit] == [12, 13, 16]
    assert builder.files == 1


@pytest.mark.parametrize("count", [1, 2, 3, 150, 400])
@pytest.mark.parametrize("slots, entries", [(50, 200), (500, 401), (3, 30), (1000, 100)])
def test_shape_of_any_index_file_is_found_out(tmp_path, slots, entries, count):
    shape, path = Shape(slots, entries), tmp_path / "1"
    written = []

    def open_sink():
        path.unlink(missing_ok=True)
        written.append(builders.IndexWriter(str(path), shape))
        return written[-1]

    builder = builders.IndexBuilder(shape, open_sink)
    for number in range(count):  # three keys of each record, as usual
        builder.put(f"T#{number}", number // 3 * 100, 1000 + number)
    builder.finish()
    reader = IndexReader(str(path), path.stat().st_size)
    assert reader.shape == shape


def test_shape_of_index_files_is_found_out(copy):
    for name in ("own", "normal", "kill"):
        shapes = {reader.shape for reader in StoreReader(str(copy(name))).index_files()[0] if not reader.is_empty}
        assert shapes == {(50, 200)}
