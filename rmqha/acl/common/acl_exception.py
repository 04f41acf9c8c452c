"""A request that may not be served, or a file that can't be used."""
from rmqha.remoting.exception import RequestDeniedException


class AclException(RequestDeniedException):
    """Access is denied, or an account, an address or a file of accounts is wrong.

    Java: org.apache.rocketmq.acl.common.AclException (4.9.8)
    """

    JAVA_NAME = "org.apache.rocketmq.acl.common.AclException"  # begins the remark that clients get

    def __init__(self, message: str, status: str | None = None, code: int = 0, answer: str | None = None) -> None:
        super().__init__(message)
        self.answer = message if answer is None else answer  # for whoever asked; `message` may be logged
        self.status = status
        self.code = code
