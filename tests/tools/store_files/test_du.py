"""store du."""
import os
from collections import Counter

from tests.tools.store_files.test_verify import damage_magic, records


def test_parts_add_up_to_what_is_on_disk(run, run_json, copy):
    root = copy("own")
    code, found = run_json("du", root)
    files = [path for path in root.rglob("*") if path.is_file()]
    assert code == 0
    assert found["total"] == {"files": len(files), "apparent": sum(path.stat().st_size for path in files),
                              "used": sum(path.stat().st_blocks * 512 for path in files)}
    for name in ("files", "apparent", "used"):
        assert sum(part[name] for part in found["parts"].values()) == found["total"][name]
    assert {"commitlog", "consumequeue/TopicA", "consumequeue/Batch", "index", "other"} <= found["parts"].keys()
    code, out, _ = run("du", root)
    assert code == 0 and out.splitlines()[2].startswith("commitlog")


def test_holes_in_files_are_not_used(run_json, copy):
    root = copy("own")
    with open(root / "config" / "big" if (root / "config").is_dir() else root / "big", "wb") as file:
        os.truncate(file.fileno(), 1 << 30)
    total = run_json("du", root)[1]["total"]
    assert total["apparent"] > 1 << 30 > total["used"]


def test_messages_are_counted_by_topic(run, run_json, copy):
    root = copy("normal")
    code, found = run_json("du", root, "--by-topic")
    counts, sizes = Counter(), Counter()
    for record in records(root):
        counts[record.topic] += 1
        sizes[record.topic] += record.size
    assert code == 0
    assert found["topics"] == {topic: {"messages": counts[topic], "bytes": sizes[topic]} for topic in counts}
    assert "GoldenTopic1" in run("du", root, "--by-topic")[1]


def test_damage_is_said(run, copy):
    root = copy("own")
    damage_magic(root)
    code, out, err = run("du", root, "--by-topic")
    assert code == 1 and "TopicA" in out and "store verify" in err


def test_commit_log_elsewhere_counts(run_json, copy, tmp_path):
    root = copy("own")
    (root / "commitlog").rename(tmp_path / "log")
    code, found = run_json("du", root, "--commitlog", tmp_path / "log")
    assert code == 0 and found["parts"]["commitlog"]["files"] > 1
