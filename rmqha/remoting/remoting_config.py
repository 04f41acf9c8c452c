"""The settings of the remoting client and the remoting server."""
import os

from rmqha.common.config_keys import AnyInt, ByteCount, LongMillis, Millis, Natural, Port, Positive, Seconds
from rmqha.common.lazy_dataclasses import dataclass, field


@dataclass
class RemotingClientConfig:
    """Limits, time-outs and socket options of the calling side. The attributes are the config keys.

    Java: org.apache.rocketmq.remoting.netty.NettyClientConfig (4.9.8)
    """

    clientWorkerThreads: Positive = 4
    clientCallbackExecutorThreads: AnyInt = field(default_factory=lambda: os.cpu_count() or 1)
    clientOnewaySemaphoreValue: Positive = 65535
    clientAsyncSemaphoreValue: Positive = 65535
    connectTimeoutMillis: Millis = 3000
    channelNotActiveInterval: LongMillis = 1000 * 60

    # An idle event follows when nothing was read or written for this long; 0 disables it.
    clientChannelMaxIdleTimeSeconds: Seconds = 120

    # 0 leaves the choice to the operating system.
    clientSocketSndBufSize: ByteCount = 0
    clientSocketRcvBufSize: ByteCount = 0
    clientPooledByteBufAllocatorEnable: bool = False
    clientCloseSocketIfTimeout: bool = True

    useTLS: bool = False

    # In bytes. They have an effect only if both are above 0.
    writeBufferHighWaterMark: ByteCount = 0
    writeBufferLowWaterMark: ByteCount = 0


@dataclass
class ServerConfig:
    """Ports, queues and socket options of the listening side. The attributes are the config keys.

    Java: org.apache.rocketmq.remoting.netty.NettyServerConfig (4.9.8)
    """

    listenPort: Port = 8888
    serverWorkerThreads: Positive = 8
    serverCallbackExecutorThreads: AnyInt = 0
    serverSelectorThreads: Natural = 3
    serverOnewaySemaphoreValue: Positive = 256
    serverAsyncSemaphoreValue: Positive = 64
    serverChannelMaxIdleTimeSeconds: Seconds = 120

    # 0 leaves the choice to the operating system.
    serverSocketSndBufSize: ByteCount = 0
    serverSocketRcvBufSize: ByteCount = 0
    # In bytes. They have an effect only if both are above 0.
    writeBufferHighWaterMark: ByteCount = 0
    writeBufferLowWaterMark: ByteCount = 0
    serverSocketBacklog: Natural = 1024
    serverPooledByteBufAllocatorEnable: bool = True

    useEpollNativeSelector: bool = False
