"""The server side of remoting.

One IO thread accepts, reads, decodes, serves inline or hands to an executor, and writes. `CertificateWatch` applies new
certificates without a restart: new connections get them, existing ones keep theirs.
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


TLS_HANDSHAKE = 0x16  # first byte of a TLS connection; no frame is long enough to begin with it

log = logging.getLogger("RocketmqRemoting")


class RemotingServer(RemotingAbstract):
    """Serves requests on `config.listenPort` (0: any, see `local_listen_port`), on all IPv4 addresses.

    `tls`: by default what the system properties say. `port_use`: which of several ports it is, for errors.

    Java: org.apache.rocketmq.remoting.netty.NettyRemotingServer (4.9.8)
    """

    def __init__(self, config: ServerConfig, channel_event_listener: ChannelEventListener | None = None,
                 tls: TlsSystemConfig | None = None, port_use: str = LISTEN_PORT) -> None:
        super().__init__(config.serverOnewaySemaphoreValue, config.serverAsyncSemaphoreValue, channel_event_listener)
        self.config = config
        self._port_use = port_use
        self.tls = tls or TlsSystemConfig()
        self._ssl_context: ssl.SSLContext | None = None  # replaced as a whole; read by the IO thread
        self._is_ssl_settled = False  # once load_ssl_context was called
        self.local_listen_port = 0  # the bound port, once started
        self._public_executor = NamedThreadPool("NettyServerPublicExecutor_",
                                                config.serverCallbackExecutorThreads or 4)
        self.callback_executor = self._public_executor
        self.large_requests = LargeRequests(BODY_LIMITS)  # before the start, servers of one process may share theirs
        # Differs: one IO thread; serverSelectorThreads, useEpollNativeSelector and
        # serverPooledByteBufAllocatorEnable are not read.
        self.io = IoThread("NettyServerNIOSelector_1_1", self, config.serverChannelMaxIdleTimeSeconds)

    def load_ssl_context(self) -> None:
        """Read the certificates of the TLS settings, for new connections. Raises ConfigError, with nothing changed."""
        mode = self.tls.tls_mode
        self._is_ssl_settled = True
        log.info("Server is running in TLS %s mode", mode.value)
        if mode is TlsMode.DISABLED:
            return
        # Differs: in test mode the certificate is made when the first TLS connection needs it, if it is ever needed
        if mode is TlsMode.ENFORCING or not self.tls.with_config_file().tls_test_mode_enable:
            self._ssl_context = self._make_ssl_context()

    def _make_ssl_context(self) -> "ssl.SSLContext":
        from rmqha.remoting.tls import build_ssl_context  # heavy, and many clusters have no TLS

        context = build_ssl_context(False, self.tls)
        log.info("SSLContext created for server")
        return context

    def start(self) -> None:
        """Bind and serve. PortError when it can't be bound, ConfigError for TLS settings that it can't serve with."""
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
        """Close all connections, end the threads. Idempotent."""
        self.io.shutdown()
        self.event_executor.shutdown()
        if self.large_requests is not None:
            self.large_requests.shutdown()
        self._public_executor.shutdown()

    def register_processor(self, request_code: int, processor: RequestProcessor,
                           executor: NamedThreadPool | None = None) -> None:
        """Serve a code with `processor`, in the IO thread itself when there is no executor."""
        # Differs: without an executor Java takes the public pool.
        self.processor_table[request_code] = ProcessorPair(processor, executor)

    def register_default_processor(self, processor: RequestProcessor, executor: NamedThreadPool | None = None) -> None:
        """Serve all other codes with `processor`."""
        self.default_request_processor = ProcessorPair(processor, executor)

    def invoke_sync(self, channel: Channel, request: RemotingCommand, timeout_ms: float) -> RemotingCommand:
        """Call a client and wait. Not on the IO thread."""
        return self.invoke_sync_impl(channel, request, timeout_ms)

    def invoke_async(self, channel: Channel, request: RemotingCommand, timeout_ms: float,
                     invoke_callback: InvokeCallback) -> None:
        """Call a client; `invoke_callback(response_future)` is called once, in the public pool."""
        self.invoke_async_impl(channel, request, timeout_ms, invoke_callback)

    def invoke_oneway(self, channel: Channel, request: RemotingCommand, timeout_ms: float) -> None:
        """Tell a client something."""
        self.invoke_oneway_impl(channel, request, timeout_ms)

    def on_accept(self, connected: socket.socket, address: tuple[str, int]) -> None:
        """A client has connected."""
        config = self.config
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if config.serverSocketSndBufSize > 0:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, config.serverSocketSndBufSize)
        marks = (config.writeBufferHighWaterMark, config.writeBufferLowWaterMark)
        channel = Channel(connected, address, self.io, *water_marks(*marks))
        log.info("NETTY SERVER PIPELINE: channelActive, the channel[%s]", parse_channel_remote_addr(channel))
        self.io.add(channel)
        self.event_executor.put_event("CONNECT", channel)

    def on_first_byte(self, channel: Channel, first: int) -> "ssl.SSLContext | None":
        """The context for a TLS connection; closes what the mode does not allow.

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
        """A client is gone."""
        log.info("NETTY SERVER PIPELINE: channelInactive, the channel[%s]", parse_channel_remote_addr(channel))
        super().on_closed(channel)

    def on_idle(self, channel: Channel) -> None:
        """A client is idle."""
        log.warning("NETTY SERVER PIPELINE: IDLE exception [%s]", parse_channel_remote_addr(channel))
        super().on_idle(channel)


class CertificateWatch:
    """Reloads the certificates of servers with the same TLS settings when their files change.

    Java: org.apache.rocketmq.broker.BrokerController#initialize (4.9.8)
    """

    def __init__(self, servers: Sequence[RemotingServer]) -> None:
        self._servers = servers
        self._service: FileWatchService | None = None  # made by start, when there are files to watch
        # Of the service's thread:
        self._trusted: str | None = None
        self._pair: frozenset[str] = frozenset()  # certificate and key: one without the other is of no use
        self._changed: set[str] = set()  # those of the pair that are new, and not yet loaded

    def start(self) -> None:
        """Watch the files that the settings name. Raises ConfigError when the settings can't be read."""
        tls = self._servers[0].tls
        if tls.tls_mode is TlsMode.DISABLED or self._service is not None:
            return
        settings = tls.with_config_file()
        if settings.tls_test_mode_enable:  # no file is used
            return
        self._trusted = settings.tls_server_trust_cert_path
        pair = settings.tls_server_cert_path, settings.tls_server_key_path
        self._pair = frozenset(path for path in pair if path)
        self._service = FileWatchService((*pair, self._trusted), self._on_changed)
        self._service.start()

    def shutdown(self) -> None:
        """Stop. Idempotent."""
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
                self._reload()  # when it fails, the next change of either tries again
                self._changed.clear()

    def _reload(self) -> None:
        for server in self._servers:
            server.load_ssl_context()
