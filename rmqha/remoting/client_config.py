"""Settings of the remoting client."""
import os
from dataclasses import dataclass, field

from rmqha.common.config_field import Long


@dataclass
class ClientConfig:
    """Limits, time-outs and socket options of the calling side; attributes are the config keys.

    Java: org.apache.rocketmq.remoting.netty.NettyClientConfig (4.9.8)
    """

    clientWorkerThreads: int = 4
    clientCallbackExecutorThreads: int = field(default_factory=lambda: os.cpu_count() or 1)
    clientOnewaySemaphoreValue: int = 65535
    clientAsyncSemaphoreValue: int = 65535
    connectTimeoutMillis: int = 3000
    channelNotActiveInterval: Long = 1000 * 60

    # an idle event when nothing was read nor written for so long; 0 switches it off
    clientChannelMaxIdleTimeSeconds: int = 120

    # 0 leaves the choice to the operating system
    clientSocketSndBufSize: int = 0
    clientSocketRcvBufSize: int = 0
    clientPooledByteBufAllocatorEnable: bool = False
    clientCloseSocketIfTimeout: bool = True

    useTLS: bool = False

    # bytes; only both above 0 count
    writeBufferHighWaterMark: int = 0
    writeBufferLowWaterMark: int = 0
