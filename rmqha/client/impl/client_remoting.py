"""The connections of a client: a process that ends does not wait for them, and a forked one does not use them."""
from rmqha.client.common.home_process import HomeProcess
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_abstract import InvokeCallback
from rmqha.remoting.remoting_client import RemotingClient
from rmqha.remoting.remoting_config import ClientConfig
from rmqha.remoting.tls_system_config import TlsSystemConfig

_CLIENT = "a client"


class ClientRemoting(RemotingClient):
    """A RemotingClient whose threads end with the process, and which refuses calls in a process forked from its own."""

    # Differs: a process whose main thread has ended, with an exception say, ends although nobody shut its client down;
    # the original's JVM waits for ever
    def __init__(self, config: ClientConfig, tls: TlsSystemConfig | None = None) -> None:
        super().__init__(config, tls=tls)
        self._home = HomeProcess()
        self.io.daemon = self.event_executor.daemon = True

    def is_left(self) -> bool:
        """Whether this process was forked from the one that started the client."""
        return self._home.is_left()

    def check_process(self) -> None:
        """Raise MQClientException in a process that was forked after the start."""
        self._home.check(_CLIENT)

    def start(self) -> None:
        """Be ready to call, in this process."""
        self._home.begin()
        super().start()

    def shutdown(self) -> None:
        """Close all connections, end the threads; nothing in a forked process, whose parent still uses them."""
        if not self._home.is_left():
            super().shutdown()

    def invoke_sync(self, addr: str | None, request: RemotingCommand, timeout_ms: float) -> RemotingCommand:
        """Call and wait."""
        self._home.check(_CLIENT)
        return super().invoke_sync(addr, request, timeout_ms)

    def invoke_async(self, addr: str | None, request: RemotingCommand, timeout_ms: float,
                     invoke_callback: InvokeCallback) -> None:
        """Call and be called back."""
        self._home.check(_CLIENT)
        super().invoke_async(addr, request, timeout_ms, invoke_callback)

    def invoke_oneway(self, addr: str | None, request: RemotingCommand, timeout_ms: float) -> None:
        """Call without an answer."""
        self._home.check(_CLIENT)
        super().invoke_oneway(addr, request, timeout_ms)
