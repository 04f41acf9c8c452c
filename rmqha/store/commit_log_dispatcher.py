"""What is done with each record after it was appended."""
from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rmqha.common import sys_flags
from rmqha.store.dispatch_request import DispatchRequest

if TYPE_CHECKING:
    from rmqha.store.default_message_store import DefaultMessageStore

_PREPARED_OR_ROLLBACK = (sys_flags.TRANSACTION_PREPARED_TYPE, sys_flags.TRANSACTION_ROLLBACK_TYPE)


class CommitLogDispatcher(Protocol):
    """Gets every record once, in order, on the dispatching thread; again after a crash.

    Java: org.apache.rocketmq.store.CommitLogDispatcher (4.9.8)
    """

    def dispatch(self, request: DispatchRequest) -> None:
        """Take note of one record."""


class CommitLogDispatcherBuildConsumeQueue:
    """Adds a unit to the consume queue of every record that consumers may see.

    Java: org.apache.rocketmq.store.DefaultMessageStore$CommitLogDispatcherBuildConsumeQueue (4.9.8)
    """

    def __init__(self, default_message_store: DefaultMessageStore) -> None:
        self.default_message_store = default_message_store

    def dispatch(self, request: DispatchRequest) -> None:
        """Prepared and rolled back messages get no unit."""
        if request.sys_flag & sys_flags.TRANSACTION_ROLLBACK_TYPE not in _PREPARED_OR_ROLLBACK:
            self.default_message_store.put_message_position_info(request)


class CommitLogDispatcherBuildIndex:
    """Adds the keys of every record to the index.

    Java: org.apache.rocketmq.store.DefaultMessageStore$CommitLogDispatcherBuildIndex (4.9.8)
    """

    def __init__(self, default_message_store: DefaultMessageStore) -> None:
        self.default_message_store = default_message_store

    def dispatch(self, request: DispatchRequest) -> None:
        """Nothing when the index is switched off."""
        if self.default_message_store.message_store_config.messageIndexEnable:
            self.default_message_store.index_service.build_index(request)
