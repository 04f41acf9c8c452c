"""What the client raises besides the remoting exceptions."""
from rmqha.common.protocol import namespace_util


class MQClientException(Exception):
    """The client could not do what was asked; `response_code` is -1, a ClientErrorCode or a broker's response code.

    Java: org.apache.rocketmq.client.exception.MQClientException (4.9.8)
    """

    def __init__(self, error_message: str | None, response_code: int = -1) -> None:
        text = _java_text(error_message)
        text = text if response_code == -1 else f"CODE: {response_code}  DESC: {text}"
        super().__init__(namespace_util.attach_default_url(text))
        self.response_code = response_code
        self.error_message = error_message

    def with_response_code(self, response_code: int) -> "MQClientException":
        """Set the code without changing the text; Java's fluent setResponseCode."""
        self.response_code = response_code
        return self


class RequestTimeoutException(MQClientException):
    """A request was sent, and no reply came in time.

    Java: org.apache.rocketmq.client.exception.RequestTimeoutException (4.9.8)
    """


class MQBrokerException(Exception):
    """A broker or name server answered with an error: its `response_code`, its remark, its address.

    Java: org.apache.rocketmq.client.exception.MQBrokerException (4.9.8)
    """

    def __init__(self, response_code: int, error_message: str | None, broker_addr: str | None = None) -> None:
        broker = f" BROKER: {broker_addr}" if broker_addr is not None else ""
        text = f"CODE: {response_code}  DESC: {_java_text(error_message)}{broker}"
        super().__init__(namespace_util.attach_default_url(text))
        self.response_code = response_code
        self.error_message = error_message
        self.broker_addr = broker_addr


def _java_text(text: str | None) -> str:
    return "null" if text is None else text
