"""A wish to hear when a connection reaches a state."""
from __future__ import annotations

from dataclasses import dataclass, field

from rmqha.common.completable import Completable
from rmqha.store.ha.ha_connection_state import HAConnectionState


@dataclass(slots=True)
class HAConnectionStateNotificationRequest:
    """`request_future` gives True once the connection with `remote_addr` (an address without port) is in
    `expect_state`; False when none comes in time, or when it ends and `notify_when_shutdown`.

    Java: org.apache.rocketmq.store.ha.HAConnectionStateNotificationRequest (5.1.4)
    """

    expect_state: HAConnectionState
    remote_addr: str
    notify_when_shutdown: bool
    request_future: Completable[bool] = field(default_factory=Completable)
