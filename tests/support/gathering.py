"""A dispatch that waits for more messages, whatever the pace of the machine."""
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rmqha.store import reput_message_service
from rmqha.store.default_message_store import DefaultMessageStore
from tests.support.wait import wait_until


@contextmanager
def gathering(store: DefaultMessageStore) -> Iterator[None]:
    """What is appended within and nobody waits for is not dispatched until somebody asks for it, or at the end."""
    service = store.reput_message_service
    wait = service.wait_for_running
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "wait_for_running", lambda ms: wait(600_000 if service._gathering else ms))
        patch.setattr(reput_message_service, "_IDLE_MS", 10)
        service.run_between_records(lambda: None)  # a shorter time that had begun is over now
        service._woken_ns = 1 << 62  # it expects more
        wait_until(lambda: service._gathering, 60_000, "gathering")
        try:
            yield
        finally:
            patch.undo()
            service.wakeup()
