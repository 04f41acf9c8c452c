"""Bodies of requests."""
from typing import TypeVar

from rmqha.remoting.exception import RemotingCommandException
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.fastjson import FastjsonError
from rmqha.remoting.protocol.remoting_command import RemotingCommand

T = TypeVar("T")


def decode_body(request: RemotingCommand, cls: type[T]) -> T:
    """The request's JSON body as a `cls`; RemotingCommandException, the peer's fault, when it can't be read."""
    try:
        return remoting_serializable.from_json(cls, request.body or b"")
    except FastjsonError as failure:
        raise RemotingCommandException(f"the body is no {cls.__name__}: {failure}") from None
