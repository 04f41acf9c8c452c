"""The exceptions of the transport."""


class RemotingException(Exception):
    """Base of the transport's errors.

    Java: org.apache.rocketmq.remoting.exception.RemotingException (4.9.8)
    """


class RemotingCommandException(RemotingException):
    """A command or its custom header can't be decoded.

    Java: org.apache.rocketmq.remoting.exception.RemotingCommandException (4.9.8)
    """


class RequestDeniedException(Exception):
    """A hook has refused a request, so the peer is at fault. The answer's remark begins with JAVA_NAME."""

    JAVA_NAME: str | None = None


class RemotingConnectException(RemotingException):
    """Connecting to an address failed.

    Java: org.apache.rocketmq.remoting.exception.RemotingConnectException (4.9.8)
    """

    def __init__(self, addr: str) -> None:
        super().__init__(f"connect to {addr} failed")
        self.addr = addr


class RemotingSendRequestException(RemotingException):
    """The request was not sent, or only a part of it.

    Java: org.apache.rocketmq.remoting.exception.RemotingSendRequestException (4.9.8)
    """

    def __init__(self, addr: str) -> None:
        super().__init__(f"send request to <{addr}> failed")
        self.addr = addr


class RemotingTimeoutException(RemotingException):
    """The answer did not arrive in time. With `timeout_ms`, the first argument is the peer's address, else a text.

    Java: org.apache.rocketmq.remoting.exception.RemotingTimeoutException (4.9.8)
    """

    def __init__(self, addr_or_text: str, timeout_ms: float | None = None) -> None:
        if timeout_ms is None:
            super().__init__(addr_or_text)
        else:
            super().__init__(f"wait response on the channel <{addr_or_text}> timeout, {timeout_ms:.0f}(ms)")


class RemotingTooMuchRequestException(RemotingException):
    """Too many calls are in progress.

    Java: org.apache.rocketmq.remoting.exception.RemotingTooMuchRequestException (4.9.8)
    """
