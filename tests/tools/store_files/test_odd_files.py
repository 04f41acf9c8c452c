"""Pipes, devices and sockets in a store's folder, and log files that no broker wrote: errors at once, no waiting."""
import ast
import os
import shutil
import socket
from itertools import chain

import pytest

from rmqha.common.filesystem import NotRegularFileError, open_regular
from tests.store.support import message, new_store, open_store, put, wait_dispatched
from tests.support.sources import ROOT
from tests.tools.store_files.test_verify import segment

COMMANDS = [("verify", "{}"), ("dump", "{}"), ("diff", "{}", "{}"), ("rebuild", "{}", "--apply", "--out", "{}-new")]
PLACES = ["lock", "checkpoint", "config/deletedTopics.json"]


def make(kind, path):
    """Put something that is no file in the place of a file."""
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        here = os.getcwd()
        os.chdir(path.parent)  # a socket's path is short
        try:
            with socket.socket(socket.AF_UNIX) as end:
                end.bind(path.name)
        finally:
            os.chdir(here)


@pytest.mark.parametrize("kind", ["pipe", "device", "socket", "folder"])
@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_file_in_a_store_is_told_at_once(copy, run, kind, place):
    root = copy("own")
    make(kind, root / place)
    code, _out, err = run("verify", root)
    assert code == 2 and f"{root / place} is a" in err and "should be a regular file" in err
    assert "fault of rmqha" not in err


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_no_command_waits_for_a_lock_that_is_a_pipe(copy, run, command):
    root = copy("own")
    make("pipe", root / "lock")
    code, _out, err = run(*(word.format(root) for word in command))
    assert code == 2 and "lock is a named pipe" in err


@pytest.mark.parametrize("kind", ["pipe", "device", "socket"])
def test_log_files_queues_and_index_files_that_are_none(copy, run, kind):
    root = copy("own")
    for path in (segment(root, -1), sorted(root.glob("consumequeue/*/*/*"))[0], sorted((root / "index").iterdir())[0]):
        make(kind, path)
    code, out, _err = run("verify", root, "--all")
    assert code == 1 and "it is no commit log file" in out and "it is no consume queue file" in out
    code, _out, err = run("dump", segment(root, -1))
    assert code == 2 and "neither a folder nor a regular file" in err


def test_a_file_is_opened_and_nothing_else(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    with open(open_regular(tmp_path / "file"), "rb") as file:
        assert file.read() == b"abc"
    with open(open_regular(tmp_path / "new", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.write(b"x")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")
    for kind in ("pipe", "device", "socket", "folder"):
        make(kind, tmp_path / kind)
        before = len(os.listdir("/proc/self/fd"))
        for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_CREAT):
            with pytest.raises(NotRegularFileError, match=f"{kind} is a"):
                open_regular(tmp_path / kind, flags)
        assert len(os.listdir("/proc/self/fd")) == before


FILESYSTEM = ROOT / "rmqha/common/filesystem.py"


def opens_of(path, functions=None):
    """The lines of a module, or of some of its functions, that open a file in another way than by open_regular, or as
    a new one."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree) if functions is None else chain.from_iterable(
            ast.walk(each) for each in tree.body if getattr(each, "name", "") in functions):
        if not isinstance(node, ast.Call):
            continue
        text = ast.unparse(node)
        if ast.unparse(node.func) in ("open", "os.open") and not any(
                word in text for word in ("open_regular(", "O_EXCL", "'xb'", "_LOCKS", "closefd", "O_DIRECTORY")):
            yield f"{path.relative_to(ROOT)}:{node.lineno}: {text}"


def test_tools_open_files_of_a_store_by_one_function():
    modules = [*(ROOT / "rmqha" / "tools" / "store").glob("*.py"),
               ROOT / "rmqha/tools/replication/receive.py", ROOT / "rmqha/tools/quickstart.py",
               ROOT / "rmqha/pipeline/log/log_scan.py", ROOT / "rmqha/store/index/index_file.py"]
    assert [line for module in modules for line in opens_of(module)] == []
    readers = {"list_segments", "read_at", "pread"}
    assert readers <= {function.name for function in ast.parse(FILESYSTEM.read_text("utf-8")).body
                       if isinstance(function, ast.FunctionDef)}
    assert list(opens_of(FILESYSTEM, readers)) == []


@pytest.mark.parametrize("messages", [1, 7])
def test_a_log_file_that_ends_with_a_record_is_told_as_the_broker_tells_it(tmp_path, run, messages, caplog):
    with open_store(tmp_path / "store") as store:
        for number in range(messages):
            put(store, message("T", 0, b"x" * (10 + number)))
        end = store.get_max_phy_offset()
        wait_dispatched(store)
    root = tmp_path / "store"
    assert run("verify", root)[0] == 0
    os.truncate(segment(root, 0), end)
    shutil.copytree(root, tmp_path / "started")
    assert not (broker := new_store(tmp_path / "started")).load()
    broker.shutdown()
    said = f"{end} length not matched message store config value, please check it manually"
    assert said in caplog.text
    for options in ((), ("--file-size", end)):
        code, out, _err = run("verify", root, *options)
        assert code == 1 and f"FLAW {segment(root, 0)}" in out and said in out
