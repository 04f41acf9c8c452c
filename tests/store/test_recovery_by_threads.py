"""A recovery that looks over files side by side does what one does that goes over one after the other."""
import random
import shutil
import threading

import pytest

from rmqha.store import commit_log_recovery, dispatch
from rmqha.store.bulk import bulk
from rmqha.store.commit_log_recovery import CommitLogRecovery, DamagedCommitLogError
from tests.store.support import FILE_SIZE, message, new_store, put, tree, wait_dispatched
from tests.support.own_threads import own_threads

TOPICS = ("T", "U")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Five files, two topics, closed properly."""
    root = tmp_path_factory.mktemp("written") / "store"
    store = new_store(root)
    assert store.load()
    store.start()
    for number in range(90):
        put(store, message(TOPICS[number % 2], number % 3, b"%03d" % number + b"x" * 700, KEYS=f"k{number}"))
    wait_dispatched(store)
    store.shutdown()
    assert len(list((root / "commitlog").iterdir())) >= 5
    return root


def recovered(written, root, cores, monkeypatch, caplog, change):
    """What a start makes of a store: whether it opens, its files, what the walk noted, and the lines of the log."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(written, root)
    change(root)
    noted, threads = [], []
    original, look_over = CommitLogRecovery._finish, CommitLogRecovery._look_over_file

    def finish(self, files, process_offset, *rest):
        assert not any(thread.name.startswith("RecoverCommitLogThread_") for thread in own_threads())
        noted.append((process_offset, dict(self._last_queue_offsets)))
        original(self, files, process_offset, *rest)

    def look(self, mapped_file):
        threads.append(threading.current_thread().name)
        return look_over(self, mapped_file)

    with monkeypatch.context() as patch:
        patch.setattr(commit_log_recovery, "usable_cores", lambda: cores)
        patch.setattr(bulk, "is_compiled", lambda: True)
        patch.setattr(dispatch, "SPAN_RECORDS", 4)
        patch.setattr(CommitLogRecovery, "_finish", finish)
        patch.setattr(CommitLogRecovery, "_look_over_file", look)
        caplog.clear()
        store = new_store(root)
        loaded = store.load()
        lines = [record.getMessage() for record in caplog.records
                 if record.module in ("commit_log_recovery", "record_check")
                 and " is kept in " not in record.getMessage()]  # the name has the time
        flaws = [str(record.exc_info[1]) for record in caplog.records
                 if record.exc_info and isinstance(record.exc_info[1], DamagedCommitLogError)]
        log = tree(root / "commitlog")
        end = store.get_max_phy_offset()
        store.shutdown()
    assert bool(threads) is (cores > 1) or not loaded
    return loaded, end, noted, lines, flaws, log


def same(written, tmp_path, monkeypatch, caplog, change):
    """The results of one core and of several; each on a copy at the same place."""
    results = [recovered(written, tmp_path / "store", cores, monkeypatch, caplog, change) for cores in (1, 2, 4)]
    assert results[1] == results[0]
    assert results[2] == results[0]
    return results[0]


def patch_file(root, number, position, data):
    path = sorted((root / "commitlog").iterdir())[number]
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)


def positions(root, number):
    """Where the records of a file begin, and where they end."""
    data, position, found = sorted((root / "commitlog").iterdir())[number].read_bytes(), 0, []
    while data[position + 4:position + 8] == b"\xda\xa3\x20\xa7":
        found.append(position)
        position += int.from_bytes(data[position:position + 4], "big")
    return found, position


def without_queues(root):
    shutil.rmtree(root / "consumequeue")


CHANGES = {
    "whole": lambda root: None,
    "no queues": without_queues,
    "bad magic early": lambda root: patch_file(root, -3, positions(root, -3)[0][5] + 4, b"\0\0\0\0"),
    "bad magic in the second": lambda root: patch_file(root, -2, positions(root, -2)[0][5] + 4, b"\x55\xaa"),
    "bad magic last": lambda root: patch_file(root, -1, positions(root, -1)[0][1] + 4, b"\x55\xaa"),
    "bad crc early": lambda root: patch_file(root, -3, positions(root, -3)[0][5] + 100, b"\x55\xaa"),
    "bad crc last": lambda root: patch_file(root, -1, positions(root, -1)[0][1] + 100, b"\x55\xaa"),
    "says another place": lambda root: patch_file(root, -3, positions(root, -3)[0][5] + 28, bytes(6) + b"\x01\x02"),
    "topic is no text": lambda root: patch_file(root, -3, positions(root, -3)[0][5] + 88 + 703 + 1, b"\xff"),
    "blank says too little": lambda root: patch_file(root, -3, positions(root, -3)[1], b"\0\0\0\x09"),
    "no blank": lambda root: patch_file(root, -3, positions(root, -3)[1], bytes(8)),
    "nothing in the last": lambda root: patch_file(root, -1, 0, bytes(FILE_SIZE)),
    "no file before the last": lambda root: sorted((root / "commitlog").iterdir())[-2].unlink(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_several_threads_do_as_one(written, tmp_path, monkeypatch, caplog, name):
    caplog.set_level("INFO")
    loaded, _, noted, lines, flaws, _ = same(written, tmp_path, monkeypatch, caplog, CHANGES[name])
    if "early" in name or name == "bad magic in the second":
        assert not loaded and flaws
    if name == "whole":
        assert loaded and noted and len(noted[0][1]) == 6 and any("last mapped file" in each or "end" in each
                                                                   for each in lines)


@pytest.mark.parametrize("seed", range(25))
def test_random_damage_is_treated_the_same(written, tmp_path, monkeypatch, caplog, seed):
    caplog.set_level("INFO")

    def change(root):
        random_ = random.Random(seed)
        for _ in range(random_.randrange(1, 4)):
            number, size = random_.choice((-1, -2, -3)), random_.choice((1, 2, 40))
            end = positions(root, number)[1] + 8
            patch_file(root, number, random_.randrange(end), random_.randbytes(size))

    same(written, tmp_path, monkeypatch, caplog, change)
