"""Settings of the remoting server."""
from dataclasses import dataclass


@dataclass
class ServerConfig:
    """Ports, queues and socket options of the listening side; attributes are the config keys.

    Java: org.apache.rocketmq.remoting.netty.NettyServerConfig (4.9.8)
    """

    listenPort: int = 8888
    serverWorkerThreads: int = 8
    serverCallbackExecutorThreads: int = 0
    serverSelectorThreads: int = 3
    serverOnewaySemaphoreValue: int = 256
    serverAsyncSemaphoreValue: int = 64
    serverChannelMaxIdleTimeSeconds: int = 120

    # 0 leaves the choice to the operating system
    serverSocketSndBufSize: int = 0
    serverSocketRcvBufSize: int = 0
    # bytes; only both above 0 count
    writeBufferHighWaterMark: int = 0
    writeBufferLowWaterMark: int = 0
    serverSocketBacklog: int = 1024
    serverPooledByteBufAllocatorEnable: bool = True

    useEpollNativeSelector: bool = False
