"""Settings of the remoting server."""
from dataclasses import dataclass

from rmqha.common.config_keys import AnyInt, ByteCount, Natural, Port, Positive, Seconds


@dataclass
class ServerConfig:
    """Ports, queues and socket options of the listening side; attributes are the config keys.

    Java: org.apache.rocketmq.remoting.netty.NettyServerConfig (4.9.8)
    """

    listenPort: Port = 8888
    serverWorkerThreads: Positive = 8
    serverCallbackExecutorThreads: AnyInt = 0
    serverSelectorThreads: Natural = 3
    serverOnewaySemaphoreValue: Positive = 256
    serverAsyncSemaphoreValue: Positive = 64
    serverChannelMaxIdleTimeSeconds: Seconds = 120

    # 0 leaves the choice to the operating system
    serverSocketSndBufSize: ByteCount = 0
    serverSocketRcvBufSize: ByteCount = 0
    # bytes; only both above 0 count
    writeBufferHighWaterMark: ByteCount = 0
    writeBufferLowWaterMark: ByteCount = 0
    serverSocketBacklog: Natural = 1024
    serverPooledByteBufAllocatorEnable: bool = True

    useEpollNativeSelector: bool = False
