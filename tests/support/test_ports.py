"""Ports for servers of tests: none is promised twice within a short while."""
import socket

import pytest

from tests.support import ports


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """This process has 40 ports, none of which it has given yet."""
    lowest = ports.free_block(above=39)
    monkeypatch.setattr(ports, "_range", [lowest, lowest + 40])
    monkeypatch.setattr(ports, "_taken", {})
    return range(lowest, lowest + 40)


def test_ports_are_given_again_when_there_are_no_others_the_oldest_first(few):
    given = [ports.free_port() for _ in range(30)]
    assert len(set(given)) == 30 and set(given) <= set(few)
    for _ in range(200):
        given.append(ports.free_port())
        assert given[-1] in few and given[-1] not in given[-6:-1]


def test_what_listens_is_not_given(few):
    with socket.create_server(("127.0.0.1", few[7])):
        assert few[7] not in {ports.free_port() for _ in range(120)}


def test_a_block_has_room_around_its_port(few):
    blocks = [ports.free_broker_port() for _ in range(4)]
    assert len({port + step for port in blocks for step in (-2, -1, 0, 1)}) == 16


def test_a_range_that_is_full_is_named(few):
    with pytest.raises(AssertionError, match=f"no free ports from {few[0]} to {few[-1] + 1}"):
        listening = []
        try:
            for port in few:
                listening.append(socket.create_server(("0.0.0.0", port)))
            ports.free_port()
        finally:
            for each in listening:
                each.close()
