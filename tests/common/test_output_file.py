"""A file that is named: replaced as a whole, found behind links, and pipes and devices left what they are."""
import os
import socket
import stat
import threading

import pytest

from rmqha.common import filesystem
from tests.support.sources import ROOT

TEXT = b"whole\n" * 1000


def write(path, replace=True, text=TEXT):
    with filesystem.writing(str(path), replace) as file:
        file.write(text)


def names(folder):
    return sorted(each.name for each in folder.iterdir())


@pytest.mark.parametrize("replace", [True, False])
def test_a_new_file(tmp_path, replace):
    write(tmp_path / "out", replace)
    assert (tmp_path / "out").read_bytes() == TEXT and names(tmp_path) == ["out"]


def test_a_file_is_replaced_in_its_mode(tmp_path):
    (tmp_path / "out").write_bytes(b"old")
    (tmp_path / "out").chmod(0o640)
    with pytest.raises(FileExistsError):
        write(tmp_path / "out", replace=False)
    assert (tmp_path / "out").read_bytes() == b"old"
    write(tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == TEXT and names(tmp_path) == ["out"]
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o640


def test_what_fails_leaves_what_was_there(tmp_path):
    (tmp_path / "out").write_bytes(b"old")
    for name in ("out", "new"):
        with pytest.raises(ZeroDivisionError), filesystem.writing(str(tmp_path / name), True) as file:
            file.write(TEXT)
            raise ZeroDivisionError
    assert names(tmp_path) == ["out"] and (tmp_path / "out").read_bytes() == b"old"


def test_what_somebody_else_makes_meanwhile_is_kept(tmp_path):
    with pytest.raises(FileExistsError), filesystem.writing(str(tmp_path / "out"), False) as file:
        file.write(TEXT)
        (tmp_path / "out").write_bytes(b"theirs")
    assert names(tmp_path) == ["out"] and (tmp_path / "out").read_bytes() == b"theirs"


def test_files_of_nearly_the_name_are_not_touched(tmp_path):
    (tmp_path / "elsewhere").write_bytes(b"theirs")
    (tmp_path / "out.part").symlink_to("elsewhere")
    write(tmp_path / "out")
    assert names(tmp_path) == ["elsewhere", "out", "out.part"]
    assert (tmp_path / "elsewhere").read_bytes() == b"theirs"


@pytest.mark.parametrize("exists", [True, False])
def test_links_are_followed_and_stay(tmp_path, exists):
    (tmp_path / "far").mkdir()
    if exists:
        (tmp_path / "far" / "file").write_bytes(b"old")
    (tmp_path / "far" / "second").symlink_to("file")
    (tmp_path / "first").symlink_to("far/second")
    write(tmp_path / "first")
    assert os.readlink(tmp_path / "first") == "far/second" and os.readlink(tmp_path / "far" / "second") == "file"
    assert (tmp_path / "far" / "file").read_bytes() == TEXT and names(tmp_path / "far") == ["file", "second"]
    with pytest.raises(FileExistsError):
        write(tmp_path / "first", replace=False)


def test_links_in_a_ring(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        write(tmp_path / "a")
    assert names(tmp_path) == ["a", "b"]


@pytest.mark.parametrize("through_a_link", [True, False])
@pytest.mark.parametrize("replace", [True, False])
def test_a_pipe_is_written_to_and_stays(tmp_path, through_a_link, replace):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    came = []
    reader = threading.Thread(target=lambda: came.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write(tmp_path / ("link" if through_a_link else "pipe"), replace)
    reader.join(240)
    assert came == [TEXT] and names(tmp_path) == ["link", "pipe"]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode) and (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("through_a_link", [True, False])
def test_a_terminal_is_written_to_and_stays(tmp_path, through_a_link):
    """A device of the test's own: what replaced it would replace /dev/null and /dev/stdout, too, where root runs it."""
    main, terminal = os.openpty()
    try:
        device = os.ttyname(terminal)
        (tmp_path / "link").symlink_to(device)
        write(tmp_path / "link" if through_a_link else device, replace=False, text=b"text")
        assert os.read(main, 100) == b"text" and stat.S_ISCHR(os.stat(device).st_mode)
        assert (tmp_path / "link").is_symlink() and names(tmp_path) == ["link"]
    finally:
        os.close(main)
        os.close(terminal)


@pytest.mark.parametrize("form", ["/dev/fd/{}", "/proc/self/fd/{}", "/proc/thread-self/fd/{}", "link"])
def test_descriptors_are_written_to_where_they_stand(tmp_path, form):
    with open(tmp_path / "log", "ab") as log:
        log.write(b"before ")
        log.flush()
        (tmp_path / "link").symlink_to(f"/dev/fd/{log.fileno()}")
        write(tmp_path / "link" if form == "link" else form.format(log.fileno()), replace=False)
        log.write(b" behind")
    assert (tmp_path / "log").read_bytes() == b"before " + TEXT + b" behind" and names(tmp_path) == ["link", "log"]
    read, sending = os.pipe()
    write(f"/dev/fd/{sending}", text=b"x" * 100)
    os.close(sending)
    with open(read, "rb") as pipe:
        assert pipe.read() == b"x" * 100


def test_what_can_not_be_written_to(tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for path in (tmp_path / "socket", tmp_path, tmp_path / "none" / "out"):
            with pytest.raises(OSError):
                write(path)
    assert names(tmp_path) == ["socket"]


def test_no_command_replaces_a_file_in_another_way():
    """A command that moves a file over one that somebody named would replace a pipe or a link."""
    sources = [path for room in ("tools", "pipeline") for path in (ROOT / "rmqha" / room).rglob("*.py")]
    found = [str(path.relative_to(ROOT)) for path in sources if "os.replace(" in path.read_text("utf-8")]
    # mqadmin's bodies of messages get names that nobody has typed, in a folder of /tmp: no link there is followed
    assert len(sources) > 100 and found == ["rmqha/tools/command/message_query.py"]
