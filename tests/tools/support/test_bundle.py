"""The archive: bounded in size, readable by everyone's tools, complete in its manifest."""
import io
import json
import re
import shutil
import subprocess
import tarfile
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.tools.support import bundle as bundle_module
from rmqha.tools.support.bundle import MANIFEST, README, Bundle, Item, JsonItem, Missing, TarGz, Zip, safe_name
from rmqha.tools.support.redaction import Redactor
from tests.support.tiers import drawn

FOLDER = "rmqha-support-test"
NOW = 1_767_225_600.0


def new_bundle(max_size: int = 1 << 24, archive: type[TarGz] | type[Zip] = TarGz) -> tuple[Bundle, io.BytesIO]:
    """Return a bundle, and the stream that it is written to."""
    stream = io.BytesIO()
    return Bundle(archive(stream), Redactor(), max_size, {"rmqha": "1"}, FOLDER, NOW), stream


def members(data: bytes) -> dict[str, str]:
    """Return the members of a bundle by their names without the folder."""
    if data.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            assert file.testzip() is None
            found = {info.filename: file.read(info) for info in file.infolist()}
    else:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
            assert all(info.isfile() and info.mode == 0o600 for info in tar)
            found = {info.name: tar.extractfile(info).read() for info in tar}
    return {name.removeprefix(f"{FOLDER}/"): content.decode("utf-8", "surrogateescape") for name,
        content in found.items()}


@pytest.mark.parametrize("archive", [TarGz, Zip])
def test_items_are_read_back(archive):
    bundle, stream = new_bundle(archive=archive)
    bundle.add(Item("logs/a.log", "one\ntwo", "/logs/a.log"))
    bundle.add(JsonItem("host/facts.json", {"a": [1, "ä"]}, "this host"))
    bundle.add(Missing("broker b", "no answer"))
    bundle.close()
    found = members(stream.getvalue())
    assert found["logs/a.log"] == "one\ntwo" and json.loads(found["host/facts.json"]) == {"a": [1, "ä"]}
    manifest = json.loads(found[MANIFEST])
    assert [item["name"] for item in manifest["items"]] == ["logs/a.log", "host/facts.json"]
    assert manifest["missing"] == [{"what": "broker b", "why": "no answer"}]
    assert "- `logs/a.log`: /logs/a.log" in found[README] and "- broker b: no answer" in found[README]


@pytest.mark.skipif(shutil.which("tar") is None or shutil.which("gzip") is None, reason="needs tar and gzip")
def test_other_programs_read_a_tar_of_several_gzip_members(tmp_path):
    bundle, stream = new_bundle()
    for number in range(5):
        bundle.add(Item(f"logs/{number}.log", f"{number}\n" * 1000, "x"))
    bundle.close()
    (tmp_path / "b.tar.gz").write_bytes(stream.getvalue())
    listed = subprocess.run(["tar", "tzf", "b.tar.gz"], cwd=tmp_path, capture_output=True, text=True, check=True)
    names = [*(f"logs/{number}.log" for number in range(5)), MANIFEST, README]
    assert listed.stdout.split() == [f"{FOLDER}/{name}" for name in names]
    assert listed.stderr == ""
    subprocess.run(["gzip", "-t", "b.tar.gz"], cwd=tmp_path, check=True)


hexadecimal = st.binary(max_size=3000).map(lambda data: data.hex())
items = st.lists(st.tuples(st.text(max_size=30), hexadecimal, st.integers(1, 40), st.booleans()), max_size=8)


@settings(max_examples=drawn(60))
@given(items, st.integers(64 << 10, 200 << 10), st.sampled_from([TarGz, Zip]))
def test_the_size_is_never_exceeded(drawn_items, max_size, archive):
    bundle, stream = new_bundle(max_size, archive)
    for name, text, times, keep_end in drawn_items:
        bundle.add(Item(name, text * times, name, keep_end))
        bundle.add(Missing(name * 20, text))
    bundle.close()
    assert len(stream.getvalue()) <= max_size
    found = members(stream.getvalue())
    manifest = json.loads(found[MANIFEST])
    assert {item["name"] for item in manifest["items"]} == found.keys() - {MANIFEST, README}


def test_what_does_not_fit_is_cut_at_a_line_or_left_out():
    lines = "".join(f"{number} {number ** 40}\n" for number in range(1200))
    bundle, stream = new_bundle(64 << 10)
    for name, keep_end in (("end.log", True), ("begin.json", False)):
        bundle.add(Item(name, lines, "x", keep_end))
    for number in range(20):
        bundle.add(Item(f"more-{number}", lines[number:], "x"))
    bundle.close()
    assert len(stream.getvalue()) <= 64 << 10
    found = members(stream.getvalue())
    assert lines.endswith(found["end.log"]) and re.match(r"\d+ \d+\n", found["end.log"])
    manifest = json.loads(found[MANIFEST])
    assert manifest["items"][0]["cut"].startswith("the end of ")
    assert any("do not fit: raise --max-size" in missing["why"] for missing in manifest["missing"])


def test_a_large_bundle_stops_at_its_number_of_items(monkeypatch):
    monkeypatch.setattr(bundle_module, "MAX_ITEMS", 3)
    bundle, stream = new_bundle()
    for number in range(6):
        bundle.add(Item(f"{number}", "x" * 5000, f"file {number}"))
    bundle.close()
    found = members(stream.getvalue())
    assert len(found) == 5
    assert {missing["what"] for missing in json.loads(found[MANIFEST])["missing"]} == {"file 3", "file 4", "file 5"}


@pytest.mark.parametrize(("name", "safe"), [
    ("logs/store.log", "logs/store.log"), ("../../etc/passwd", "etc/passwd"), ("/etc/shadow", "etc/shadow"),
    ("a\nb\x1b[31m.log", "a_b__31m.log"), ("", "item"), ("..", "item"), ("a//./b", "a/b"), ("x" * 400, "x" * 75),
    ("logs/\udcff.log", "logs/_.log"), ("C:\\x", "C__x"), ("manifest.json/..", "manifest.json")])
def test_names_are_made_harmless(name, safe):
    assert safe_name(name) == safe


@given(st.lists(st.text(max_size=40), max_size=6))
def test_hostile_names_do_not_collide_or_leave_the_folder(names):
    bundle, stream = new_bundle()
    for name in [*names, "A.log", "a.log", MANIFEST, README]:
        bundle.add(Item(name, f"content of {len(name)}", name))
    bundle.close()
    found = members(stream.getvalue())
    assert len(found) == len(names) + 6
    assert all(re.fullmatch(r"[A-Za-z0-9._+/\-]+", name) and ".." not in name.split("/") for name in found)
    assert len({name.lower() for name in found}) == len(found)


def test_names_and_sources_are_redacted_and_printable():
    bundle, stream = new_bundle()
    bundle.redactor.add_secret("topsecret")
    bundle.add(Item("logs/topsecret.log", "x", "/logs/topsecret\n.log"))
    bundle.add(Missing("topsecret", "password=abc\x1b[0m"))
    bundle.close()
    text = json.dumps(members(stream.getvalue()))
    assert "topsecret" not in text and "abc" not in text and "\\u001b" not in text
