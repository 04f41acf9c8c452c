"""Names that come from files and peers become paths only below the folder that they belong to."""
import os
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.broker import broker_startup
from rmqha.common.compression import GZIP, inflate
from rmqha.common.texts import MAX_BYTES, folder_name, is_folder_name, path_below
from rmqha.store.consume_queue_layout import is_safe_topic
from rmqha.tools.local_cluster import layout
from rmqha.tools.local_cluster.layout import ClusterError
from tests.store.support import open_store
from tests.support.sources import ROOT

ODD = ["", ".", "..", "/", "a/b", "../a", "a/..", "/a", "a\0b", "\0", "n" * (MAX_BYTES + 1), "ü" * MAX_BYTES, "\ud800",
       None, 7, b"a", ["a"]]


@pytest.mark.parametrize("name", ODD)
def test_what_names_no_entry_of_a_folder_is_refused(name):
    assert not is_folder_name(name)
    with pytest.raises(ValueError, match=r"^the topic .* can't be the name of a file or folder"):
        folder_name(name, "the topic")


@given(st.text(max_size=40))
def test_a_name_that_is_taken_is_one_entry_of_its_folder(name):
    if is_folder_name(name):
        assert folder_name(name, "it") == name
        assert os.path.dirname(os.path.normpath(os.path.join("/top", name))) == "/top"


@given(st.lists(st.one_of(st.sampled_from(["..", ".", "", "a", "/"]), st.text(max_size=5)), min_size=1, max_size=6))
def test_a_path_that_is_taken_leads_down(parts):
    path = "/".join(parts)
    try:
        assert path_below(path, "it") == path
    except ValueError:
        assert not all(map(is_folder_name, path.split("/")))
    else:
        assert os.path.normpath(os.path.join("/top", path)).startswith("/top/")


def test_there_is_one_function():
    assert all(is_safe_topic(name) is is_folder_name(name) for name in [*ODD[:-4], "%RETRY%g", "T"])
    written_again = [str(path) for path in (ROOT / "rmqha").rglob("*.py")
                     if '".", "..")' in path.read_text("utf-8")]
    assert written_again == [str(ROOT / "rmqha" / "common" / "texts.py")]


@pytest.mark.parametrize("topic", ["../../victim", "..", "%LMQ%/../../../victim"])
def test_a_deletion_that_a_master_tells_removes_no_folder_outside(tmp_path, topic, caplog):
    (tmp_path / "victim").mkdir()
    with open_store(tmp_path / "store") as store:
        os.makedirs(os.path.join(store.get_store_path_logic(), "%LMQ%"), exist_ok=True)
        store.queue_removal.drop_topic(topic)
        assert store.find_consume_queue(topic, 0) is None
    assert (tmp_path / "victim").is_dir() and "no folder of consume queues can have the name" in caplog.text


def test_logs_of_a_broker_stay_in_their_folder(tmp_path, capsys):
    file = tmp_path / "broker.conf"
    file.write_text(f"storePathRootDir={tmp_path}/s\nbrokerName=../../out\nisolateLogEnable=true\nlistenPort=0\n")
    assert broker_startup.main(["-c", str(file)]) == 2
    assert "brokerName: with isolateLogEnable=true it names a folder of logs" in capsys.readouterr().err


@pytest.mark.parametrize("node", ['{"name": ".."}', '{"name": ""}', '{"name": "a/b"}', '{"name": 7}',
                                  '{"name": "b", "role": "r", "port": 1e999, "brokerName": "b", "brokerId": 0}'])
def test_a_server_of_a_cluster_is_named_as_one_folder(tmp_path, node):
    (tmp_path / layout.DESCRIPTION).write_text(
        f'{{"rmqhaCluster": {layout._FORMAT}, "memory": "1", "nodes": [{node}]}}')
    with pytest.raises(ClusterError, match="is none of `rmqha up`'s, or was damaged"):
        layout.read(tmp_path)


@given(st.binary(max_size=2000), st.integers(0, 2000))
def test_what_is_unpacked_is_bounded(data, most):
    for kind in (zlib.MAX_WBITS, GZIP):
        stream = zlib.compressobj(wbits=kind)
        packed = stream.compress(data) + stream.flush()
        if len(data) <= most:
            assert inflate(packed, most, kind) == data
        else:
            with pytest.raises(ValueError, match=f"unpacks to more than {most} bytes"):
                inflate(packed, most, kind)
        with pytest.raises(ValueError, match="end too early|damaged|unpacks to more"):
            inflate(packed[:-1], most, kind)
