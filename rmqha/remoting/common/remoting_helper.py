"""Addresses and errors as texts."""
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqha.remoting.channel import Channel

DEFAULT_CHARSET = "utf-8"


def parse_channel_remote_addr(channel: "Channel | None") -> str:
    """`ip:port` of the peer, an empty text without one.

    Java: org.apache.rocketmq.remoting.common.RemotingHelper#parseChannelRemoteAddr (4.9.8)
    """
    return "" if channel is None else parse_socket_address_addr(channel.remote_address)


def parse_socket_address_addr(address: tuple[str, int] | None) -> str:
    """`ip:port`.

    Java: org.apache.rocketmq.remoting.common.RemotingHelper#parseSocketAddressAddr (4.9.8)
    """
    return f"{address[0]}:{address[1]}" if address else ""


def string2_socket_address(addr: str) -> tuple[str, int]:
    """(host, port) of `host:port`; ValueError when it has another form.

    Java: org.apache.rocketmq.remoting.common.RemotingHelper#string2SocketAddress (4.9.8)
    """
    host, colon, port = addr.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 0xFFFF:
        raise ValueError(f"{addr!r} is no host:port")
    return host.removeprefix("/"), int(port)


def exception_simple_desc(error: BaseException | None) -> str:
    """`module.Class: message, module.function(file.py:line)`: what it is and where it was raised.

    Java: org.apache.rocketmq.remoting.common.RemotingHelper#exceptionSimpleDesc (4.9.8)
    """
    if error is None:
        return ""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    name = getattr(kind, "JAVA_NAME", None) or name
    text = f"{name}: {error}" if str(error) else name
    frames = list(traceback.walk_tb(error.__traceback__))
    if not frames:
        return text
    frame, line = frames[-1]
    code = frame.f_code
    file = code.co_filename.replace("\\", "/").rpartition("/")[2]
    return f"{text}, {frame.f_globals.get('__name__')}.{code.co_qualname}({file}:{line})"
