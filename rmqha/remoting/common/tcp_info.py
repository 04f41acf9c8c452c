"""What the kernel knows of a TCP connection, where it tells (Linux)."""
import socket

_RETRANSMITS = 2  # offset of tcpi_retransmits, a byte, in Linux' struct tcp_info


def retransmits(sock: socket.socket) -> int:
    """How often in a row the oldest bytes under way were sent again without an answer; 0 where the system can't tell.

    It is above 0 for a while when a packet is lost; several say that nothing passes in this direction.
    """
    option = getattr(socket, "TCP_INFO", None)
    if option is None:
        return 0
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, option, _RETRANSMITS + 1)[_RETRANSMITS]
    except OSError:  # closed, or no TCP
        return 0
