"""The quick selectors beside those of Python."""
import selectors
import socket
from collections.abc import Callable, Iterator

import pytest

from rmqha.remoting.io_thread import QuickEpollSelector, QuickPollSelector

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE

Pairs = list[tuple[socket.socket, socket.socket]]


@pytest.fixture
def pairs() -> Iterator[Pairs]:
    """Three connected pairs; the first of each is watched."""
    made = [socket.socketpair() for _ in range(3)]
    yield made
    for pair in made:
        for end in pair:
            end.close()


def nothing(_pairs: Pairs) -> None:
    """No event."""


def one_byte(pairs: Pairs) -> None:
    """One is readable."""
    pairs[0][1].send(b"x")


def bytes_for_all(pairs: Pairs) -> None:
    """All are readable."""
    for _watched, other in pairs:
        other.send(b"x")


def hang_up(pairs: Pairs) -> None:
    """One ends, with bytes in front of its end."""
    pairs[1][1].send(b"x")
    pairs[1][1].close()


def half_closed(pairs: Pairs) -> None:
    """One gets no more bytes."""
    pairs[2][1].shutdown(socket.SHUT_WR)


def full(pairs: Pairs) -> None:
    """One takes no more bytes, and has some to be read."""
    pairs[0][0].setblocking(False)
    with pytest.raises(BlockingIOError):
        while True:
            pairs[0][0].send(bytes(1 << 16))
    pairs[0][1].send(b"x")


def in_order(ready: list[tuple[selectors.SelectorKey, int]]) -> list[tuple[selectors.SelectorKey, int]]:
    """By descriptor."""
    return sorted(ready, key=lambda pair: pair[0].fd)


@pytest.mark.parametrize("happens", [nothing, one_byte, bytes_for_all, hang_up, half_closed, full])
@pytest.mark.parametrize("events", [(READ, READ, READ), (WRITE, READ, READ), (READ | WRITE, WRITE, READ | WRITE)])
@pytest.mark.parametrize(("quick", "plain"), [(QuickEpollSelector, selectors.EpollSelector),
                                              (QuickPollSelector, selectors.PollSelector)])
@pytest.mark.parametrize("timeout", [0, -1, 0.0005])
def test_what_is_ready_is_the_same(pairs: Pairs, happens: Callable[[Pairs], None], events: tuple[int, ...],
                                   quick: type[selectors.BaseSelector], plain: type[selectors.BaseSelector],
                                   timeout: float) -> None:
    with quick() as one, plain() as other:
        for (watched, _end), event in zip(pairs, events, strict=True):
            for selector in (one, other):
                selector.register(watched, event, data=event)
        happens(pairs)
        assert in_order(one.select(timeout)) == in_order(other.select(timeout))
        for selector in (one, other):
            selector.modify(pairs[0][0], READ, data="new")
            selector.unregister(pairs[1][0])
        assert in_order(one.select(timeout)) == in_order(other.select(timeout))


@pytest.mark.parametrize("quick", [QuickEpollSelector, QuickPollSelector])
def test_without_a_timeout_it_waits_for_the_first(pairs: Pairs, quick: type[selectors.BaseSelector]) -> None:
    with quick() as selector:
        key = selector.register(pairs[0][0], READ)
        one_byte(pairs)
        assert selector.select() == [(key, READ)]


def test_socket_that_was_closed_too_early_is_no_event(pairs: Pairs) -> None:
    """Whoever holds a copy of its descriptor keeps it in the system's list."""
    with QuickEpollSelector() as selector:
        selector.register(pairs[0][0], READ)
        with pairs[0][0].dup():
            pairs[0][0].close()
            selector.unregister(pairs[0][0])
            one_byte(pairs)
            assert selector.select(0) == []
