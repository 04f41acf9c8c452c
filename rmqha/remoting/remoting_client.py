"""The client side of remoting: connections to servers, and checks whether a server is still running.

- `RemotingClient`: one IO thread reads and writes all connections. The calling thread connects when there is no
  connection yet.
- `WatchedClient`: a client whose owner depends on the connections themselves and is notified before one is closed.
- `PeerWatch`: detects at once that the process that listens on an address has ended, through a connection over which
  nothing is sent:

    on its thread: connect -> wait for the end -> connect again ... refused? nothing is listening any more -> on_gone

- `refusal`: checks whether an address accepts connections.
"""
from __future__ import annotations

import logging
import random
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.common.lazy_dataclasses import replace
from rmqha.common.service_thread import ServiceThread
from rmqha.common.threads import NamedThreadPool
from rmqha.remoting.addresses import parse_channel_remote_addr, string2_socket_address
from rmqha.remoting.channel import Channel, water_marks
from rmqha.remoting.exception import (
    RemotingConnectException,
    RemotingSendRequestException,
    RemotingTimeoutException,
    RemotingTooMuchRequestException,
)
from rmqha.remoting.interfaces import ChannelEventListener, RequestProcessor
from rmqha.remoting.io_thread import IoThread
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_abstract import InvokeCallback, ProcessorPair, RemotingAbstract
from rmqha.remoting.remoting_config import RemotingClientConfig
from rmqha.remoting.tls_system_config import TlsSystemConfig

if TYPE_CHECKING:
    import ssl

    from rmqha.remoting.tls import TlsSocket


log = logging.getLogger("RocketmqRemoting")

LOCK_TIMEOUT_MS = 3000


class RemotingClient(RemotingAbstract):
    """A client that calls servers by address, with one connection each. Address None means a name server.

    `tls`: the settings for `config.useTLS`; by default those of the system properties.
    Callbacks and processors run in the pool NettyClientPublicExecutor_, so they may block.

    Java: org.apache.rocketmq.remoting.netty.NettyRemotingClient (4.9.8)
    """

    channel_class = Channel  # the class of its connections

    def __init__(self, config: RemotingClientConfig, channel_event_listener: ChannelEventListener | None = None,
                 tls: TlsSystemConfig | None = None) -> None:
        super().__init__(config.clientOnewaySemaphoreValue, config.clientAsyncSemaphoreValue, channel_event_listener)
        self.config = config
        self.tls = tls or TlsSystemConfig()
        # Set by start if config.useTLS.
        self._ssl_context: ssl.SSLContext | None = None
        # By address; guarded by _lock_channel_tables.
        self.channel_tables: dict[str, Channel] = {}
        self._lock_channel_tables = threading.Lock()
        # By address: one thread at a time connects; guarded by _lock_channel_tables.
        self._connecting: dict[str, threading.Lock] = {}
        self._namesrv_addr_list: list[str] | None = None  # replaced as a whole
        # Written under _namesrv_channel_lock, read without it.
        self._namesrv_addr_choosed: str | None = None
        self._namesrv_index = random.randrange(999)  # guarded by _namesrv_channel_lock
        self._namesrv_channel_lock = threading.Lock()
        threads = config.clientCallbackExecutorThreads if config.clientCallbackExecutorThreads > 0 else 4
        self._public_executor = NamedThreadPool("NettyClientPublicExecutor_", threads)
        self.callback_executor = self._public_executor
        self.io = IoThread("NettyClientSelector_1", self, config.clientChannelMaxIdleTimeSeconds)

    def load_ssl_context(self) -> None:
        """Read the certificates of the TLS settings, if TLS is used. Raises ConfigError."""
        if self.config.useTLS:
            # Imported late: it is slow to import, and many clusters do not use TLS.
            from rmqha.remoting.tls import build_ssl_context

            # Differs: a client that is to use TLS does not start without usable certificates; Java continues with
            # unencrypted connections if it finds none
            self._ssl_context = build_ssl_context(True, self.tls)
            log.info("SSL enabled for client")

    def start(self) -> None:
        """Start the threads. Raises ConfigError for unusable TLS settings."""
        if self._ssl_context is None:
            self.load_ssl_context()
        self.io.start()
        if self.channel_event_listener is not None:
            self.event_executor.start()

    def shutdown(self) -> None:
        """Close all connections and end the threads. Idempotent."""
        self.io.shutdown()
        self.event_executor.shutdown()
        self._public_executor.shutdown()

    def close_channel(self, addr: str) -> None:
        """Close the connection to an address, if there is one."""
        channel = self.channel_tables.get(addr)
        if channel is not None:
            self._forget(addr, channel)
            channel.close()

    def detach_channel(self, addr: str) -> Channel | None:
        """Return the connection to an address, or None, and open a new one for the next call.

        Its pending calls still get their responses. The caller has to close it.
        """
        channel = self.channel_tables.get(addr)
        if channel is not None:
            self._forget(addr, channel)
        return channel

    def _forget(self, addr: str, channel: Channel) -> None:
        with self._lock_channel_tables:
            if self.channel_tables.get(addr) is channel:
                del self.channel_tables[addr]
                log.info("closeChannel: the channel[%s] was removed from channel table", addr)

    def update_name_server_address_list(self, addrs: list[str]) -> None:
        """Replace the name servers, in random order. An empty list or the same servers change nothing."""
        old = self._namesrv_addr_list
        if not addrs or (old is not None and len(old) == len(addrs) and all(addr in old for addr in addrs)):
            return
        shuffled = random.sample(addrs, len(addrs))
        log.info("name server address updated. NEW : %s , OLD: %s", shuffled, old)
        with self._namesrv_channel_lock:
            self._namesrv_addr_list = shuffled
            if self._namesrv_addr_choosed not in shuffled:
                self._namesrv_addr_choosed = None

    def get_name_server_address_list(self) -> list[str] | None:
        """Return the name servers in the order in which they are tried; None before any are set."""
        return self._namesrv_addr_list

    def invoke_sync(self, addr: str | None, request: RemotingCommand, timeout_ms: float) -> RemotingCommand:
        """Call a server, wait, and return the response.

        Raises RemotingConnectException, RemotingSendRequestException or RemotingTimeoutException. The connection is
        closed if the request could not be sent and, by default, if the response did not arrive in time.
        """
        self._call_is_possible()
        begin_ns = time.monotonic_ns()
        channel, addr = self._channel_for(addr, timeout_ms)
        try:
            self.do_before_rpc_hooks(addr, request)
            left_ms = timeout_ms - (time.monotonic_ns() - begin_ns) / 1_000_000
            if left_ms < 0:
                raise RemotingTimeoutException(f"invokeSync call the addr[{addr}] timeout")
            response = self.invoke_sync_impl(channel, request, left_ms)
        except RemotingSendRequestException:
            log.warning("invokeSync: send request exception, so close the channel[%s]", addr)
            self._close(addr, channel)
            raise
        except RemotingTimeoutException:
            if self.config.clientCloseSocketIfTimeout:
                self._close(addr, channel)
                log.warning("invokeSync: close socket because of timeout, %dms, %s", timeout_ms, addr)
            log.warning("invokeSync: wait response timeout exception, the channel[%s]", addr)
            raise
        self.do_after_rpc_hooks(parse_channel_remote_addr(channel), request, response)
        return response

    def invoke_async(self, addr: str | None, request: RemotingCommand, timeout_ms: float,
                     invoke_callback: InvokeCallback) -> None:
        """Call a server. `invoke_callback(response_future)` is called once, in the pool.

        Raises RemotingException if nothing was sent; the callback is not called then.
        """
        begin_ns = time.monotonic_ns()
        channel, addr = self._channel_for(addr, timeout_ms)
        self.do_before_rpc_hooks(addr, request)
        left_ms = timeout_ms - (time.monotonic_ns() - begin_ns) / 1_000_000
        if left_ms < 0:
            raise RemotingTooMuchRequestException(f"invokeAsync call the addr[{addr}] timeout")
        try:
            self.invoke_async_impl(channel, request, left_ms, invoke_callback)
        except RemotingSendRequestException:
            log.warning("invokeAsync: send request exception, so close the channel[%s]", addr)
            self._close(addr, channel)
            raise

    def invoke_oneway(self, addr: str | None, request: RemotingCommand, timeout_ms: float) -> None:
        """Call a server without waiting for a response. Raises RemotingException if nothing was sent."""
        channel, addr = self._channel_for(addr, timeout_ms)
        try:
            self.do_before_rpc_hooks(addr, request)
            self.invoke_oneway_impl(channel, request, timeout_ms)
        except RemotingSendRequestException:
            log.warning("invokeOneway: send request exception, so close the channel[%s]", addr)
            self._close(addr, channel)
            raise

    def register_processor(self, request_code: int, processor: RequestProcessor,
                           executor: NamedThreadPool | None = None) -> None:
        """Serve the requests of a code that servers send, in `executor` or else in the public pool."""
        self.processor_table[request_code] = ProcessorPair(processor, executor or self._public_executor)

    def _close(self, addr: str, channel: Channel) -> None:
        self._forget(addr, channel)
        channel.close()

    def _channel_for(self, addr: str | None, timeout_ms: float) -> tuple[Channel, str]:
        """Return an open channel and its address. Raises RemotingConnectException on failure."""
        if addr is None:
            return self._get_and_create_nameserver_channel(timeout_ms)
        channel = self.channel_tables.get(addr)
        if channel is None or not channel.is_active:
            channel = self._create_channel(addr, timeout_ms)
        if channel is None:
            raise RemotingConnectException(addr)
        return channel, addr

    def _get_and_create_nameserver_channel(self, timeout_ms: float) -> tuple[Channel, str]:
        """Return the chosen name server's channel. If the server can't be reached, choose the next one."""
        channel = self._chosen_channel()
        if channel is not None:
            return channel
        if not self._namesrv_channel_lock.acquire(timeout=LOCK_TIMEOUT_MS / 1000):
            log.warning("getAndCreateNameserverChannel: try to lock name server, but timeout, %dms", LOCK_TIMEOUT_MS)
            raise RemotingConnectException(self._namesrv_text())
        try:
            channel = self._chosen_channel()
            if channel is not None:
                return channel
            addrs = self._namesrv_addr_list or []
            for _ in addrs:
                self._namesrv_index += 1
                old, addr = self._namesrv_addr_choosed, addrs[self._namesrv_index % len(addrs)]
                self._namesrv_addr_choosed = addr
                log.info("new name server is chosen. OLD: %s , NEW: %s. namesrvIndex = %d", old, addr,
                         self._namesrv_index)
                created = self._create_channel(addr, timeout_ms)
                if created is not None:
                    return created, addr
            raise RemotingConnectException(self._namesrv_text())
        finally:
            self._namesrv_channel_lock.release()

    def _namesrv_text(self) -> str:
        """Return the name servers as Java prints a list."""
        return "null" if self._namesrv_addr_list is None else f"[{', '.join(self._namesrv_addr_list)}]"

    def _chosen_channel(self) -> tuple[Channel, str] | None:
        addr = self._namesrv_addr_choosed
        if addr is None:
            return None
        channel = self.channel_tables.get(addr)
        return (channel, addr) if channel is not None and channel.is_active else None

    def _create_channel(self, addr: str, timeout_ms: float) -> Channel | None:
        """Return a new channel, or one that another thread has connected meanwhile; None on failure."""
        # Differs: a call does not wait longer for the connection than for its answer
        wait_ms = self.config.connectTimeoutMillis if timeout_ms <= 0 else min(self.config.connectTimeoutMillis,
                                                                              timeout_ms)
        with self._lock_channel_tables:
            connecting = self._connecting.setdefault(addr, threading.Lock())
        if not connecting.acquire(timeout=wait_ms / 1000):
            log.warning("createChannel: connect remote host[%s] timeout %dms", addr, wait_ms)
            return None
        try:
            channel = self.channel_tables.get(addr)
            if channel is not None and channel.is_active:
                return channel
            return self._connect(addr, wait_ms)
        finally:
            connecting.release()

    def _connect(self, addr: str, wait_ms: float) -> Channel | None:
        channel = self.open_channel(addr, wait_ms)
        if channel is None:
            return None
        with self._lock_channel_tables:
            self.channel_tables[addr] = channel
        self.io.add(channel)
        log.info("createChannel: connect remote host[%s] success, %s", addr, channel)
        self.event_executor.put_event("CONNECT", channel)
        return channel

    def open_channel(self, addr: str, wait_ms: float) -> Channel | None:
        """Connect, and return a channel that is not read from yet; None on failure."""
        log.info("createChannel: begin to connect remote host[%s]", addr)
        deadline = time.monotonic() + wait_ms / 1000
        try:
            connected = socket.create_connection(string2_socket_address(addr), wait_ms / 1000)
        except (OSError, ValueError) as error:
            log.warning("createChannel: connect remote host[%s] failed, %s", addr, error)
            return None
        try:
            return self._adopt(connected, deadline)
        except OSError as error:
            connected.close()
            log.warning("createChannel: connect remote host[%s] failed, %s", addr, error)
            return None

    def _adopt(self, connected: socket.socket, deadline: float) -> Channel:
        """Return a channel for a connected socket, after setting its options. `deadline` limits the TLS handshake."""
        if connected.getsockname() == connected.getpeername():
            # If nothing is listening, the kernel may choose the called port for the client's own end.
            raise ConnectionRefusedError("connected to itself")
        config = self.config
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option, size in ((socket.SO_SNDBUF, config.clientSocketSndBufSize),
                             (socket.SO_RCVBUF, config.clientSocketRcvBufSize)):
            if size > 0:
                connected.setsockopt(socket.SOL_SOCKET, option, size)
        secured = connected if self._ssl_context is None else self._secure(connected, self._ssl_context, deadline)
        connected.setblocking(False)
        marks = (config.writeBufferHighWaterMark, config.writeBufferLowWaterMark)
        return self.channel_class(secured, connected.getpeername()[:2], self.io, *water_marks(*marks))

    @staticmethod
    def _secure(connected: socket.socket, context: ssl.SSLContext, deadline: float) -> TlsSocket:
        from rmqha.remoting.tls import TlsSocket

        secured = TlsSocket(connected, context, False)
        secured.handshake(max(deadline - time.monotonic(), 0))
        return secured

    def on_closed(self, channel: Channel) -> None:
        """Forget a connection that was closed, and end its calls."""
        log.info("NETTY CLIENT PIPELINE: CLOSE %s", parse_channel_remote_addr(channel))
        for addr, known in list(self.channel_tables.items()):
            if known is channel:
                self._forget(addr, channel)
        super().on_closed(channel)

    def on_idle(self, channel: Channel) -> None:
        """Log an idle connection, and notify the listener."""
        log.warning("NETTY CLIENT PIPELINE: IDLE exception [%s]", parse_channel_remote_addr(channel))
        super().on_idle(channel)


_CONNECT_S = 1.0
# The interval at which the watch checks whether its address has changed.
_LOOK_MS = 200
_PAUSE_MS = 100
_AGAIN_MS = 20


class PeerWatch(ServiceThread):
    """A thread that watches one address at a time.

    It does not report a host that stops answering, or one that was never reached.
    """

    def __init__(self, name: str, address: Callable[[], str | None], on_gone: Callable[[str], object]) -> None:
        """Watch what `address` returns: a `host:port`, or None for nothing. `on_gone` is called on this thread."""
        super().__init__()
        self.daemon = True
        self.join_time_ms = 5_000
        self._name, self._address, self._on_gone = name, address, on_gone

    def get_service_name(self) -> str:
        return self._name

    def run(self) -> None:
        while not self.stopped:
            address = self._address()
            if address is not None and self._ends_for_good(address):
                self._on_gone(address)
            self.wait_for_running(_PAUSE_MS)

    def _ends_for_good(self, address: str) -> bool:
        """Return whether nothing is listening on the address any more, although something was."""
        was_there = False
        while not self.stopped and self._address() == address:
            try:
                connection = _connect(address)
            except ConnectionRefusedError:
                return was_there
            except (OSError, ValueError) as error:
                log.debug("%s can't be reached: %r", address, error)
                return False
            was_there = True
            if self._has_ended(connection, address):
                log.info("the connection to %s has ended", address)
                # A process that ends closes its connections and its port in any order, so wait before connecting again.
                self.wait_for_running(_AGAIN_MS)
        return False

    def _has_ended(self, connection: socket.socket, address: str) -> bool:
        """Wait until the peer ends the connection. Return False if the address changes or the watch stops."""
        with connection:
            poll = select.poll()
            poll.register(connection, select.POLLIN)
            while not self.stopped and self._address() == address:
                if poll.poll(_LOOK_MS) and not _received(connection):
                    return True
        return False


def _connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S)


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(4096)
    except OSError:
        return b""


class WatchedChannel(Channel):
    """A connection whose `before_close` is called before this side shuts it down, or learns that it has ended."""

    __slots__ = ("before_close",)
    before_close: Callable[[], None]

    def _shutdown_socket(self) -> None:
        # The order matters: by now nothing more is written, and the peer can see the end only after `before_close`.
        self.before_close()
        super()._shutdown_socket()


class WatchedClient(RemotingClient):
    """A client that does not close a connection when a call times out, and notifies its owner of closed connections.

    `before_close` is called before a connection is closed, `after_close` when it is closed; both on any thread.
    """

    channel_class = WatchedChannel

    def __init__(self, config: RemotingClientConfig, before_close: Callable[[], None],
                 after_close: Callable[[], None]) -> None:
        super().__init__(replace(config, clientCloseSocketIfTimeout=False))
        self._before_close = before_close
        self._after_close = after_close

    def _adopt(self, connected: socket.socket, deadline: float) -> Channel:
        channel = super()._adopt(connected, deadline)
        assert isinstance(channel, WatchedChannel)  # by channel_class
        channel.before_close = self._before_close
        return channel

    def on_closed(self, channel: Channel) -> None:
        """Forget a connection that was closed, and notify the owner."""
        super().on_closed(channel)
        self._after_close()


def refusal(host: str, port: int, timeout_s: float) -> str | None:
    """Connect to host:port within `timeout_s` seconds and disconnect. Return why that failed; None if it succeeded."""
    try:
        socket.create_connection((host.strip("[]"), port), timeout_s).close()
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    except OSError as error:
        return error.strerror or str(error)
    except OverflowError:
        return "not a valid port: 0 to 65535"
    return None
