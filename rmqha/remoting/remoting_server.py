"""The server side of remoting.

One IO thread accepts, reads, decodes, serves inline or passes to an executor, and writes. `CertificateWatch` applies
new certificates without a restart.
"""
import logging
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rmqha.common.file_watch_service import FileWatchService
from rmqha.common.protocol.table_bodies import BODY_LIMITS
from rmqha.common.threads import NamedThreadPool
from rmqha.remoting.addresses import LISTEN_PORT, listen, parse_channel_remote_addr
from rmqha.remoting.channel import Channel, water_marks
from rmqha.remoting.interfaces import ChannelEventListener, RequestProcessor
from rmqha.remoting.io_thread import IoThread
from rmqha.remoting.large_requests import LargeRequests
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_abstract import InvokeCallback, ProcessorPair, RemotingAbstract
from rmqha.remoting.remoting_config import ServerConfig
from rmqha.remoting.tls_system_config import TlsMode, TlsSystemConfig

if TYPE_CHECKING:
    import ssl


# The first byte of a TLS connection. No frame is long enough for its length to begin with it.
TLS_HANDSHAKE = 0x16

log = logging.getLogger("RocketmqRemoting")


class RemotingServer(RemotingAbstract):
    """A server that listens on `config.listenPort` of all addresses (0: any port, see `local_listen_port`).

    `tls`: by default the settings of the system properties. `port_use` names the port in error texts.

    Java: org.apache.rocketmq.remoting.netty.NettyRemotingServer (4.9.8)
    """

    def __init__(self, config: ServerConfig, channel_event_listener: ChannelEventListener | None = None,
                 tls: TlsSystemConfig | None = None, port_use: str = LISTEN_PORT) -> None:
        super().__init__(config.serverOnewaySemaphoreValue, config.serverAsyncSemaphoreValue, channel_event_listener)
        self.config = config
        self._port_use = port_use
        self.tls = tls or TlsSystemConfig()
        # Replaced as a whole; read by the IO thread.
        self._ssl_context: ssl.SSLContext | None = None
        # True once load_ssl_context was called.
        self._is_ssl_settled = False
        # The bound port, once started.
        self.local_listen_port = 0
        self._public_executor = NamedThreadPool("NettyServerPublicExecutor_",
                                                config.serverCallbackExecutorThreads or 4)
        self.callback_executor = self._public_executor
        # Before the start, the servers of one process may be given a common object.
        self.large_requests = LargeRequests(BODY_LIMITS)
        # Differs: a server has one IO thread; serverSelectorThreads, useEpollNativeSelector and
        # serverPooledByteBufAllocatorEnable are not read.
        self.io = IoThread("NettyServerNIOSelector_1_1", self, config.serverChannelMaxIdleTimeSeconds)

    def load_ssl_context(self) -> None:
        """Read the certificates of the TLS settings for new connections. If it raises ConfigError, nothing changes."""
        mode = self.tls.tls_mode
        self._is_ssl_settled = True
        log.info("Server is running in TLS %s mode", mode.value)
        if mode is TlsMode.DISABLED:
            return
        # Differs: in TLS test mode the certificate is created when the first TLS connection needs it
        if mode is TlsMode.ENFORCING or not self.tls.with_config_file().tls_test_mode_enable:
            self._ssl_context = self._make_ssl_context()

    def _make_ssl_context(self) -> "ssl.SSLContext":
        # Imported late: it is slow to import, and many clusters do not use TLS.
        from rmqha.remoting.tls import build_ssl_context

        context = build_ssl_context(False, self.tls)
        log.info("SSLContext created for server")
        return context

    def start(self) -> None:
        """Open the port and serve. Raises PortError if it can't be opened, ConfigError for unusable TLS settings."""
        if not self._is_ssl_settled:
            self.load_ssl_context()
        listener = self._bind()
        self.local_listen_port = listener.getsockname()[1]
        self.io.listen(listener)
        self.io.start()
        if self.channel_event_listener is not None:
            self.event_executor.start()

    def _bind(self) -> socket.socket:
        config = self.config
        if config.serverSocketRcvBufSize > 0:
            log.info("server set SO_RCVBUF to %d", config.serverSocketRcvBufSize)
        return listen(config.listenPort, self._port_use, config.serverSocketBacklog, config.serverSocketRcvBufSize)

    def shutdown(self) -> None:
        """Close all connections and end the threads. Idempotent."""
        self.io.shutdown()
        self.event_executor.shutdown()
        if self.large_requests is not None:
            self.large_requests.shutdown()
        self._public_executor.shutdown()

    def register_processor(self, request_code: int, processor: RequestProcessor,
                           executor: NamedThreadPool | None = None) -> None:
        """Serve the requests of a code with `processor`, in `executor` or else on the IO thread."""
        # Differs: a processor without an executor runs on the IO thread; Java uses the public pool
        self.processor_table[request_code] = ProcessorPair(processor, executor)

    def register_default_processor(self, processor: RequestProcessor, executor: NamedThreadPool | None = None) -> None:
        """Serve the requests of all other codes with `processor`."""
        self.default_request_processor = ProcessorPair(processor, executor)

    def invoke_sync(self, channel: Channel, request: RemotingCommand, timeout_ms: float) -> RemotingCommand:
        """Call a client, wait, and return the response. Not for the IO thread."""
        return self.invoke_sync_impl(channel, request, timeout_ms)

    def invoke_async(self, channel: Channel, request: RemotingCommand, timeout_ms: float,
                     invoke_callback: InvokeCallback) -> None:
        """Call a client; `invoke_callback(response_future)` is called once, in the public pool."""
        self.invoke_async_impl(channel, request, timeout_ms, invoke_callback)

    def invoke_oneway(self, channel: Channel, request: RemotingCommand, timeout_ms: float) -> None:
        """Call a client without waiting for a response."""
        self.invoke_oneway_impl(channel, request, timeout_ms)

    def on_accept(self, connected: socket.socket, address: tuple[str, int]) -> None:
        """Take over the connection of a client."""
        config = self.config
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if config.serverSocketSndBufSize > 0:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, config.serverSocketSndBufSize)
        marks = (config.writeBufferHighWaterMark, config.writeBufferLowWaterMark)
        channel = Channel(connected, address, self.io, *water_marks(*marks))
        channel.reset_if_process_dies()
        log.info("NETTY SERVER PIPELINE: channelActive, the channel[%s]", parse_channel_remote_addr(channel))
        self.io.add(channel)
        self.event_executor.put_event("CONNECT", channel)

    def on_first_byte(self, channel: Channel, first: int) -> "ssl.SSLContext | None":
        """Return the context for a TLS connection. Close a connection that the mode does not allow.

        Java: org.apache.rocketmq.remoting.netty.NettyRemotingServer$HandshakeHandler (4.9.8)
        """
        mode = self.tls.tls_mode
        if first != TLS_HANDSHAKE:
            if mode is TlsMode.ENFORCING:
                log.warning("Clients intend to establish an insecure connection while this server is running in SSL "
                            "enforcing mode, %s", parse_channel_remote_addr(channel))
                channel.close()
            return None
        if mode is TlsMode.DISABLED:
            log.warning("Clients intend to establish an SSL connection while this server is running in SSL disabled "
                        "mode, %s", parse_channel_remote_addr(channel))
            channel.close()
            return None
        if self._ssl_context is None:
            self._ssl_context = self._make_ssl_context()
        return self._ssl_context

    def on_closed(self, channel: Channel) -> None:
        """Log a closed connection, end its calls, and notify the listener."""
        log.info("NETTY SERVER PIPELINE: channelInactive, the channel[%s]", parse_channel_remote_addr(channel))
        super().on_closed(channel)
        if self.relay is not None:
            self.relay.closed(channel)

    def on_idle(self, channel: Channel) -> None:
        """Log an idle connection, and notify the listener."""
        log.warning("NETTY SERVER PIPELINE: IDLE exception [%s]", parse_channel_remote_addr(channel))
        super().on_idle(channel)


class CertificateWatch:
    """Reloads the certificates of servers with the same TLS settings when their files change.

    Certificates expire, and restarting a broker to replace one interrupts its clients. So the files are watched (by
    contents, twice a second, see FileWatchService), and a change creates a new `SSLContext` for each server:

    - The new context replaces the old one as a whole. The IO thread reads it once per connection, at its first byte.
      Existing connections keep their context, and so their keys, until they end; nothing is renegotiated.
    - A changed file of trusted certificates reloads at once. A certificate and its key reload only after *both* have
      changed, because no tool replaces two files at one instant: in between, the new certificate does not match the
      old key, and loading them would fail. As in RocketMQ, a certificate that was renewed for the same key is
      therefore not picked up until the next start, unless both are in one file.
    - If loading fails, the servers keep the old context and keep serving, and FileWatchService logs the reason. The
      pair stays marked as changed, so the next change of either file tries again. A half-written file repairs itself
      this way.

    Without the rule for pairs, every renewal would log an error; without the old context as a fallback, a wrong file
    would stop a broker from accepting clients.

    Java: org.apache.rocketmq.broker.BrokerController#initialize (4.9.8)
    """

    def __init__(self, servers: Sequence[RemotingServer]) -> None:
        self._servers = servers
        # Set by start, if there are files to watch.
        self._service: FileWatchService | None = None
        # Used by the service's thread:
        self._trusted: str | None = None
        # The files of the certificate and its key.
        self._pair: frozenset[str] = frozenset()
        # The files of the pair that have changed since they were last loaded.
        self._changed: set[str] = set()

    def start(self) -> None:
        """Watch the files that the settings name. Raises ConfigError if the settings can't be read."""
        tls = self._servers[0].tls
        if tls.tls_mode is TlsMode.DISABLED or self._service is not None:
            return
        settings = tls.with_config_file()
        if settings.tls_test_mode_enable:  # its certificate is built in
            return
        self._trusted = settings.tls_server_trust_cert_path
        pair = settings.tls_server_cert_path, settings.tls_server_key_path
        self._pair = frozenset(path for path in pair if path)
        self._service = FileWatchService((*pair, self._trusted), self._on_changed)
        self._service.start()

    def shutdown(self) -> None:
        """Stop watching. Idempotent."""
        if self._service is not None:
            self._service.shutdown()

    def _on_changed(self, path: str) -> None:
        if path == self._trusted:
            log.info("The trust certificate changed, reload the ssl context")
            self._reload()
        if path in self._pair:
            self._changed.add(path)
            if self._changed == self._pair:
                log.info("The certificate and private key changed, reload the ssl context")
                self._reload()  # if it raises, _changed stays as it is
                self._changed.clear()

    def _reload(self) -> None:
        for server in self._servers:
            server.load_ssl_context()
