"""Settings of the remoting client."""
import os
from dataclasses import dataclass, field

from rmqha.common.config_keys import AnyInt, ByteCount, LongMillis, Millis, Positive, Seconds


@dataclass
class ClientConfig:
    """Limits, time-outs and socket options of the calling side; attributes are the config keys.

    Java: org.apache.rocketmq.remoting.netty.NettyClientConfig (4.9.8)
    """

    clientWorkerThreads: Positive = 4
    clientCallbackExecutorThreads: AnyInt = field(default_factory=lambda: os.cpu_count() or 1)
    clientOnewaySemaphoreValue: Positive = 65535
    clientAsyncSemaphoreValue: Positive = 65535
    connectTimeoutMillis: Millis = 3000
    channelNotActiveInterval: LongMillis = 1000 * 60

    # an idle event when nothing was read nor written for so long; 0 switches it off
    clientChannelMaxIdleTimeSeconds: Seconds = 120

    # 0 leaves the choice to the operating system
    clientSocketSndBufSize: ByteCount = 0
    clientSocketRcvBufSize: ByteCount = 0
    clientPooledByteBufAllocatorEnable: bool = False
    clientCloseSocketIfTimeout: bool = True

    useTLS: bool = False

    # bytes; only both above 0 count
    writeBufferHighWaterMark: ByteCount = 0
    writeBufferLowWaterMark: ByteCount = 0
