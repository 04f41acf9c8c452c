"""Config files, logs and stores in a bundle: hostile ones, unreadable ones, and no content of messages."""
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.common import java
from rmqha.tools.config.config_command import known_keys
from rmqha.tools.support import files
from rmqha.tools.support.bundle import Item, JsonItem, Missing
from rmqha.tools.support.files import LogFile, config_item, end_of_log, harvest, log_files, stalls_of, store_items
from rmqha.tools.support.redaction import Redactor
from tests.support.tiers import drawn

KNOWN = frozenset(known_keys())
printable = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_categories=("Cc", "Cs", "Zl", "Zp")),
                    min_size=3, max_size=20)
secrets = printable.map(lambda text: f"Zq{text}9")


def texts(found):
    """Return the text of all items, redacted as the bundle does it."""
    return "\n".join(each.data if isinstance(each, Item) else str(each) for each in found)


def bundled(path: Path, redactor: Redactor | None = None) -> str:
    """Return what a bundle has of a config file."""
    redactor = redactor or Redactor()
    harvest([str(path)], redactor)
    found = config_item(str(path), "config/x", KNOWN, redactor)
    return redactor.text(texts(found))


# ---- config files


@settings(max_examples=drawn(60))
@given(secrets, secrets,
       st.sampled_from(["etcdPassword", "tls.server.keyPassword", "myToken", "ACL_SECRET", "unknownKey"]))
def test_no_secret_of_a_properties_file_is_taken(tmp_path_factory, secret, other, key):
    path = tmp_path_factory.mktemp("conf") / "broker.conf"
    path.write_bytes((f"# {key}={other}\nbrokerName=broker-a\n{java.escape(key, is_key=True)} = {java.escape(secret)}\n"
                      f"! old secret: {other}\nlistenPort=10911\n{other}\n").encode("latin-1", "replace"))
    text = bundled(path)
    assert secret not in text and other not in text
    assert "brokerName=broker-a" in text and "listenPort=10911" in text


def test_properties_stay_on_their_lines_and_unknown_values_are_left_out(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text("# comment\n\nbrokerName=a\nlisten\\\n  Port=10911\nmyKey=some words\nmyPort = 17\nflag=true\n"
                    "namesrvAddr=user:pw@h:1\nsecretKey=\nbare-word\n", "utf-8")
    assert bundled(path).split("\n") == [
        "", "", "brokerName=a", "listenPort=10911", "", "myKey=(left out: not a key of rmqha)", "myPort=17",
        "flag=true", "namesrvAddr=user:***@h:1", "secretKey=***", "(a line without a key of rmqha)", ""]


@settings(max_examples=drawn(40))
@given(secrets, secrets, st.booleans())
def test_no_secret_of_an_account_file_is_taken(tmp_path_factory, secret, name, flow):
    path = tmp_path_factory.mktemp("conf") / "plain_acl.yml"
    data = {"globalWhiteRemoteAddresses": ["10.0.0.*"], "accounts": [
        {"accessKey": f"{name}-account", "secretKey": secret, "admin": True, "topicPerms": ["T=PUB"], "note": secret}]}
    dumped = yaml.safe_dump(data, allow_unicode=True, default_flow_style=flow)
    path.write_text(f"# secretKey: {secret}\n{dumped}", "utf-8")
    redactor = Redactor()
    text = bundled(path, redactor)
    assert secret not in text and f"{name}-account" not in text
    assert yaml.safe_load(text) == {"globalWhiteRemoteAddresses": ["10.0.0.*"], "accounts": [
        {"accessKey": "<accessKey-1>", "secretKey": "***", "admin": True, "topicPerms": ["T=PUB"],
            "(another field)": "***"}]}
    assert secret not in redactor.text(f"a log line with {secret} in it")


@pytest.mark.parametrize(("name", "content", "why"), [
    ("a.yml", b"accounts: [\nsecretKey: Zqhidden9", "not valid YAML"), ("a.conf", b"x=\\uZZZZ Zqhidden9", "line 1"),
    ("big.conf", b"a=Zqhidden9\n" * 200_000, "more than a config file"), ("none.conf", None, "does not exist")])
def test_files_that_cannot_be_read_are_left_out_as_a_whole(tmp_path, name, content, why):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    (missing,) = config_item(str(path), "config/x", KNOWN, Redactor())
    assert isinstance(missing, Missing) and why in missing.why and "Zqhidden9" not in missing.why


def test_yaml_without_its_library_is_left_out(tmp_path, monkeypatch):
    path = tmp_path / "plain_acl.yml"
    path.write_text("accounts:\n- accessKey: account-one\n  secretKey: Zqhidden9\n")
    monkeypatch.setitem(sys.modules, "yaml", None)
    redactor = Redactor()
    text = bundled(path, redactor)
    assert "Zqhidden9" not in text and "it needs PyYAML" in text
    assert redactor.line("login of account-one with Zqhidden9") == "login of <accessKey-1> with ***"


def test_pipes_and_devices_are_no_config_files(tmp_path):
    os.mkfifo(tmp_path / "broker.conf")
    for path in (tmp_path / "broker.conf", tmp_path, Path("/dev/zero")):
        (missing,) = config_item(str(path), "config/x", KNOWN, Redactor())
        assert isinstance(missing, Missing) and "not a regular file" in missing.why


# ---- logs


def test_only_logs_are_listed_the_most_useful_first(tmp_path):
    for name in ("stats.log", "store.log", "gc.out", "x.txt", "otherdays/store.1.log", "otherdays/store.2.log",
                 "broker-b/broker.log", "a/b/c/d/e/f/deep.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x\n")
    found, missing = log_files(str(tmp_path), "node")
    assert not missing
    assert [each.name for each in found] == [
        "logs/node/store.log", "logs/node/broker-b/broker.log", "logs/node/gc.out", "logs/node/stats.log",
        "logs/node/otherdays/store.1.log"]


def test_hostile_entries_of_a_log_folder_cost_nothing(tmp_path):
    """A pipe without a writer would block, a link could lead anywhere, a socket can't be read."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "secret.txt").write_text("Zqhidden9\n")
    os.mkfifo(tmp_path / "logs" / "store.log")
    (tmp_path / "logs" / "broker.log").symlink_to("../secret.txt")
    (tmp_path / "logs" / "self.log").symlink_to("self.log")
    (tmp_path / "logs" / "folder.log").mkdir()
    (tmp_path / "logs" / "zero.log").symlink_to("/dev/zero")
    (tmp_path / "logs" / "real.log").write_text("good line\n")
    (tmp_path / "logs" / "near.log").symlink_to("real.log")
    (tmp_path / "logs" / "bad\n\udcff.log").write_text("odd name\n")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "logs" / "socket.log"))
        listed, missing = log_files(str(tmp_path / "logs"), "node")
        found = [each for log in listed for each in end_of_log(log, 1000)]
    assert "Zqhidden9" not in texts([*found, *missing])
    assert sorted(item.data for item in found if isinstance(item, Item)) == ["good line\n", "good line\n", "odd name\n"]
    whys = " ".join(each.why for each in [*found, *missing] if isinstance(each, Missing))
    assert "a named pipe" in whys and "a socket" in whys and "Too many levels" in whys
    assert whys.count("outside of the folder") == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_an_unreadable_log_is_noted(tmp_path):
    (tmp_path / "store.log").write_text("x")
    (tmp_path / "store.log").chmod(0)
    (missing,) = end_of_log(LogFile(str(tmp_path / "store.log"), "logs/store.log"), 1000)
    assert isinstance(missing, Missing) and missing.why == "Permission denied"


def test_an_unreadable_log_is_noted_for_every_user(tmp_path, monkeypatch):
    def refuse(*_arguments):
        raise PermissionError(13, "Permission denied", "x")
    monkeypatch.setattr(files, "open_regular", refuse)
    (missing,) = end_of_log(LogFile(str(tmp_path / "store.log"), "logs/store.log"), 1000)
    assert missing == Missing(str(tmp_path / "store.log"), "Permission denied")


def test_the_end_of_a_log_begins_with_a_whole_line(tmp_path):
    path = tmp_path / "store.log"
    path.write_text("secretKey=Zqhidden9\nsecond line\nthird line\n")
    size = path.stat().st_size
    for most in range(size + 2):
        items = [each for each in end_of_log(LogFile(str(path), "logs/store.log"), most) if isinstance(each, Item)]
        text = "".join(item.data for item in items)
        assert "secretKey=Zqhidden9\nsecond line\nthird line\n".endswith(text)
        assert "Zqhidden9" not in text or text.startswith("secretKey=")
    assert end_of_log(LogFile(os.devnull, "x"), 10)[0].why.startswith("/dev/null is a device")


def test_a_log_is_explained_and_its_stalls_are_collected(tmp_path):
    path = tmp_path / "broker.log"
    stall = ["2026-01-01 12:00:00 WARN StallWatch - no other thread had a turn for 71 ms; CPU time in the last 900 ms:",
             "  SendMessageThread_1, CPU 70 ms", "    a.py:7 f"]
    lines = ["2026-01-01 11:00:00 INFO x - y", *stall, "2026-01-01 12:00:01 WARN x - zebras", "  z"]
    path.write_text("\n".join(lines) + "\n")
    found = {each.name: each for each in end_of_log(LogFile(str(path), "logs/n/broker.log"), 1 << 20)}
    assert found["stalls/n/broker.log"].data.splitlines() == stall
    explained = found["explained/n/broker.log.json"].value
    assert explained["known"] == {"server.stall": [1, "2026-01-01 12:00:00", "2026-01-01 12:00:00"]}
    assert explained["unknownLines"] == 1
    assert list(stalls_of(["a", "  b"])) == []


# ---- stores


def test_a_store_is_listed_without_its_content(tmp_path):
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    (root / "consumequeue" / "orders" / "0").mkdir(parents=True)
    (root / "commitlog" / f"{0:020}").write_bytes(b"Zqhidden9" * 100)
    (root / "consumequeue" / "orders" / "0" / f"{0:020}").write_bytes(b"x" * 60)
    (root / "checkpoint").write_bytes(struct.pack(">3q", 1, 0, 2 ** 63 - 1))
    (root / "abort").touch()
    os.mkfifo(root / "lock")
    (root / "loop").symlink_to(root)
    summary, listing = store_items(str(root), [str(root / "commitlog")], "stores/0")
    assert isinstance(summary, JsonItem) and isinstance(listing, Item)
    assert summary.value["folders"]["commitlog"] == {"files": 1, "bytes": 900, "allocated": 4096, "segments": 1}
    assert summary.value["abortFile"] is True and "a named pipe" in summary.value["lockIsHeld"]
    assert summary.value["checkpoint"]["physicMsgTimestamp"].startswith("1 (1970-01-01T")
    assert "Zqhidden9" not in listing.data + json.dumps(summary.value)
    assert f"consumequeue/orders/0/{0:020}" in listing.data and len(listing.data.splitlines()) == 6
    (missing,) = store_items(str(tmp_path / "none"), [], "stores/1")
    assert isinstance(missing, Missing)


def test_a_store_elsewhere_and_a_huge_one_are_listed_in_part(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MAX_LISTED", 3)
    (tmp_path / "store").mkdir()
    (tmp_path / "log").mkdir()
    for number in range(5):
        (tmp_path / "log" / f"{number:020}").touch()
    summary, listing = store_items(str(tmp_path / "store"), [str(tmp_path / "log")], "stores/0")
    assert summary.value["isWhole"] is False and len(listing.data.splitlines()) == 4
    assert summary.value["checkpoint"] is None


def test_reading_a_pipe_never_blocks(tmp_path):
    """Run the same in a process that is killed when it blocks: an alarm can't end a blocked open."""
    os.mkfifo(tmp_path / "store.log")
    program = ("import signal, sys; signal.alarm(60); from rmqha.tools.support.files import LogFile, end_of_log; "
               "print(end_of_log(LogFile(sys.argv[1], 'x'), 10))")
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "store.log")], capture_output=True, text=True,
                          check=False)
    assert done.returncode != -signal.SIGALRM and "a named pipe" in done.stdout
