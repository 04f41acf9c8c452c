"""Small pieces leave whole, however little the socket takes."""
import pytest

from rmqha.store.ha.peers import send_whole


class Narrow:
    """A socket that takes what the list says; None: it has no room."""

    def __init__(self, *takes: int | None) -> None:
        self.takes = list(takes)
        self.sent = b""

    def send(self, data: bytes) -> int:
        count = self.takes.pop(0) if self.takes else len(data)
        if count is None:
            raise BlockingIOError
        self.sent += data[:count]
        return min(count, len(data))


@pytest.mark.parametrize("takes", [(), (1, 2), (3, None, 1, None), (None, None)])
def test_all_of_it_is_sent_in_order(takes):
    sock = Narrow(*takes)
    send_whole(sock, b"greeting")
    assert sock.sent == b"greeting"


def test_socket_without_room_is_tried_three_times():
    sock = Narrow(2, None, None, None)
    with pytest.raises(BlockingIOError):
        send_whole(sock, b"greeting")
    assert (sock.sent, sock.takes) == (b"gr", [])


def test_who_may_wait_decides_for_how_long():
    sock, waits = Narrow(*[None] * 9), []
    send_whole(sock, b"greeting", lambda: waits.append(1) or True)
    assert (sock.sent, len(waits)) == (b"greeting", 9)
    with pytest.raises(BlockingIOError):
        send_whole(Narrow(None), b"greeting", lambda: False)
