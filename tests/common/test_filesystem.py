"""Files and folders: atomic replacement of named files, paths made from outside names, and the location of `conf/`."""
import os
import socket
import stat
import threading
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.broker import broker_startup
from rmqha.common import filesystem, server_util
from rmqha.common.compression import GZIP, inflate
from rmqha.common.texts import MAX_BYTES, folder_name, is_folder_name, path_below
from rmqha.store.consume_queue_layout import is_safe_topic
from rmqha.tools.local_cluster import layout
from rmqha.tools.local_cluster.layout import ClusterError
from tests.store.support import open_store
from tests.support.sources import ROOT

# A named file is replaced as a whole and found through links; pipes and devices stay pipes and devices.

TEXT = b"whole\n" * 1000


def write(path, replace=True, text=TEXT):
    with filesystem.writing(str(path), replace) as file:
        file.write(text)


def names(folder):
    return sorted(each.name for each in folder.iterdir())


@pytest.mark.parametrize("replace", [True, False])
def test_new_file_is_written(tmp_path, replace):
    write(tmp_path / "out", replace)
    assert (tmp_path / "out").read_bytes() == TEXT and names(tmp_path) == ["out"]


def test_replaced_file_keeps_its_mode(tmp_path):
    (tmp_path / "out").write_bytes(b"old")
    (tmp_path / "out").chmod(0o640)
    with pytest.raises(FileExistsError):
        write(tmp_path / "out", replace=False)
    assert (tmp_path / "out").read_bytes() == b"old"
    write(tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == TEXT and names(tmp_path) == ["out"]
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o640


def test_failed_replacement_keeps_the_old_file(tmp_path):
    (tmp_path / "out").write_bytes(b"old")
    for name in ("out", "new"):
        with pytest.raises(ZeroDivisionError), filesystem.writing(str(tmp_path / name), True) as file:
            file.write(TEXT)
            raise ZeroDivisionError
    assert names(tmp_path) == ["out"] and (tmp_path / "out").read_bytes() == b"old"


def test_file_created_meanwhile_by_another_process_is_kept(tmp_path):
    with pytest.raises(FileExistsError), filesystem.writing(str(tmp_path / "out"), False) as file:
        file.write(TEXT)
        (tmp_path / "out").write_bytes(b"theirs")
    assert names(tmp_path) == ["out"] and (tmp_path / "out").read_bytes() == b"theirs"


def test_files_with_similar_names_are_not_touched(tmp_path):
    (tmp_path / "elsewhere").write_bytes(b"theirs")
    (tmp_path / "out.part").symlink_to("elsewhere")
    write(tmp_path / "out")
    assert names(tmp_path) == ["elsewhere", "out", "out.part"]
    assert (tmp_path / "elsewhere").read_bytes() == b"theirs"


@pytest.mark.parametrize("exists", [True, False])
def test_links_are_followed_and_kept(tmp_path, exists):
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


def test_circular_links_are_refused(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        write(tmp_path / "a")
    assert names(tmp_path) == ["a", "b"]


@pytest.mark.parametrize("through_a_link", [True, False])
@pytest.mark.parametrize("replace", [True, False])
def test_pipe_is_written_to_and_stays_a_pipe(tmp_path, through_a_link, replace):
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
def test_terminal_is_written_to_and_stays_a_terminal(tmp_path, through_a_link):
    """The device is the test's own: replacing it means that /dev/null and /dev/stdout would be replaced, too, when
    run by root."""
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
def test_open_descriptors_are_written_at_their_position(tmp_path, form):
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


def test_unwritable_targets_are_refused(tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for path in (tmp_path / "socket", tmp_path, tmp_path / "none" / "out"):
            with pytest.raises(OSError):
                write(path)
    assert names(tmp_path) == ["socket"]


def test_every_command_replaces_files_with_this_function():
    """A command that moves a file over one named by the user would replace a pipe or a link."""
    sources = [path for room in ("tools", "pipeline") for path in (ROOT / "rmqha" / room).rglob("*.py")]
    found = [str(path.relative_to(ROOT)) for path in sources if "os.replace(" in path.read_text("utf-8")]
    # mqadmin names the files of message bodies on its own, in a folder of /tmp: links there are not followed.
    assert len(sources) > 100 and found == ["rmqha/tools/command/message_query.py"]


# Names from files and peers become paths only below the folder that they belong to.

ODD = ["", ".", "..", "/", "a/b", "../a", "a/..", "/a", "a\0b", "\0", "n" * (MAX_BYTES + 1), "ü" * MAX_BYTES, "\ud800",
       None, 7, b"a", ["a"]]


@pytest.mark.parametrize("name", ODD)
def test_names_that_leave_the_folder_are_refused(name):
    assert not is_folder_name(name)
    with pytest.raises(ValueError, match=r"^the topic .* can't be the name of a file or folder"):
        folder_name(name, "the topic")


@given(st.text(max_size=40))
def test_accepted_name_is_one_entry_of_its_folder(name):
    if is_folder_name(name):
        assert folder_name(name, "it") == name
        assert os.path.dirname(os.path.normpath(os.path.join("/top", name))) == "/top"


@given(st.lists(st.one_of(st.sampled_from(["..", ".", "", "a", "/"]), st.text(max_size=5)), min_size=1, max_size=6))
def test_accepted_path_leads_downwards(parts):
    path = "/".join(parts)
    try:
        assert path_below(path, "it") == path
    except ValueError:
        assert not all(map(is_folder_name, path.split("/")))
    else:
        assert os.path.normpath(os.path.join("/top", path)).startswith("/top/")


def test_all_code_uses_the_same_function():
    assert all(is_safe_topic(name) is is_folder_name(name) for name in [*ODD[:-4], "%RETRY%g", "T"])
    written_again = [str(path) for path in (ROOT / "rmqha").rglob("*.py")
                     if '".", "..")' in path.read_text("utf-8")]
    assert written_again == [str(ROOT / "rmqha" / "common" / "texts.py")]


@pytest.mark.parametrize("topic", ["../../victim", "..", "%LMQ%/../../../victim"])
def test_deletion_received_from_a_master_removes_no_folder_outside(tmp_path, topic, caplog):
    (tmp_path / "victim").mkdir()
    with open_store(tmp_path / "store") as store:
        os.makedirs(os.path.join(store.get_store_path_logic(), "%LMQ%"), exist_ok=True)
        store.queue_removal.drop_topic(topic)
        assert store.consume_queue_table.find_queue(topic, 0) is None
    assert (tmp_path / "victim").is_dir() and "is not a valid name for a folder of consume queues" in caplog.text


def test_logs_of_a_broker_stay_in_their_folder(tmp_path, capsys):
    file = tmp_path / "broker.conf"
    file.write_text(f"storePathRootDir={tmp_path}/s\nbrokerName=../../out\nisolateLogEnable=true\nlistenPort=0\n")
    assert broker_startup.main(["-c", str(file)]) == 2
    assert "brokerName: '../../out' is not a valid folder name" in capsys.readouterr().err


@pytest.mark.parametrize("node", ['{"name": ".."}', '{"name": ""}', '{"name": "a/b"}', '{"name": 7}',
                                  '{"name": "b", "role": "r", "port": 1e999, "brokerName": "b", "brokerId": 0}'])
def test_name_of_a_cluster_server_is_a_single_folder(tmp_path, node):
    (tmp_path / layout.DESCRIPTION).write_text(
        f'{{"rmqhaCluster": {layout._FORMAT}, "memory": "1", "nodes": [{node}]}}')
    with pytest.raises(ClusterError, match="was not written by `rmqha up`, or is damaged"):
        layout.read(tmp_path)


@given(st.binary(max_size=2000), st.integers(0, 2000))
def test_unpacked_size_is_bounded(data, most):
    for kind in (zlib.MAX_WBITS, GZIP):
        stream = zlib.compressobj(wbits=kind)
        packed = stream.compress(data) + stream.flush()
        if len(data) <= most:
            assert inflate(packed, most, kind) == data
        else:
            with pytest.raises(ValueError, match=f"decompresses to more than {most} bytes"):
                inflate(packed, most, kind)
        with pytest.raises(ValueError, match="are truncated|damaged|decompresses to more"):
            inflate(packed[:-1], most, kind)


# The places where `conf/` is searched: the environment, the checkout, the user's config folder.


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """As if the package were in a site-packages folder."""
    package = tmp_path / "site-packages" / "rmqha"
    package.mkdir(parents=True)
    monkeypatch.setattr(filesystem, "_PACKAGE", package)
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return package


def test_checkout_is_its_own_home(monkeypatch):
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    assert filesystem.rocketmq_home() == filesystem.checkout() == ROOT
    assert filesystem.templates() == ROOT / "conf"


def test_environment_has_precedence(installed, monkeypatch):
    monkeypatch.setenv("ROCKETMQ_HOME", "/srv/rocketmq")
    assert filesystem.rocketmq_home() == Path("/srv/rocketmq")


def test_installed_package_has_its_home_in_the_users_config_folder(installed, tmp_path, monkeypatch):
    assert filesystem.checkout() is None and filesystem.templates() == installed / "conf"
    assert filesystem.rocketmq_home() == tmp_path / "home" / ".config" / "rmqha"
    assert server_util.default_rocketmq_home() == str(tmp_path / "home" / ".config" / "rmqha")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/etc/xdg")
    assert filesystem.rocketmq_home() == Path("/etc/xdg/rmqha")
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert filesystem.rocketmq_home() == tmp_path / "home" / ".config" / "rmqha"
