import threading

import pytest

from rmqha.common.futures import AtomicLong
from rmqha.store.flush_services import GroupCommitRequest
from rmqha.store.ha.group_transfer_service import GroupTransferService
from rmqha.store.results import PutMessageStatus
from tests.support.wait import lasting, wait_until


class Acks:
    """The rule, and the term, that a GroupTransferService asks for."""

    def __init__(self) -> None:
        self.term = 0
        self.push2_slave_max_offset = AtomicLong(0)
        self.several: dict[int, int] = {}  # by number of acknowledgements, when that is not 1

    def acked_offset(self, ack_nums: int) -> int:
        return self.several.get(ack_nums, -1) if ack_nums != 1 else self.push2_slave_max_offset.get()


def new_service() -> GroupTransferService:
    acks = Acks()
    service = GroupTransferService(acks, acks)
    service.acks = acks
    return service


@pytest.fixture
def service():
    service = new_service()
    service.start()
    yield service
    service.shutdown()


def acknowledge(service: GroupTransferService, offset: int) -> None:
    if service.acks.push2_slave_max_offset.set_max(offset):
        service.notify_transfer_some()


def put(service: GroupTransferService, offset: int, timeout_ms: int = 60_000) -> GroupCommitRequest:
    request = GroupCommitRequest(offset, timeout_ms)
    service.put_request(request)
    return request


def test_request_completes_with_its_acknowledgement(service):
    request = put(service, 100)
    acknowledge(service, 99)
    with pytest.raises(TimeoutError):
        request.future.get(50)
    acknowledge(service, 100)
    assert request.future.get(60_000) is PutMessageStatus.PUT_OK
    wait_until(lambda: service.waiting_requests() == 0)


def test_request_that_is_acknowledged_already_completes_at_once(service):
    acknowledge(service, 100)
    assert put(service, 100).future.is_done


def test_request_times_out_at_its_deadline(service):
    with lasting(0.15):
        assert put(service, 100, 150).future.get(120_000) is PutMessageStatus.FLUSH_SLAVE_TIMEOUT


def test_acknowledged_request_does_not_wait_behind_an_earlier_one(service):
    big, small = put(service, 1_000_000), put(service, 100)
    acknowledge(service, 500)
    assert small.future.get(60_000) is PutMessageStatus.PUT_OK
    assert not big.future.is_done


def test_sooner_deadline_behind_a_later_one_is_kept(service):
    late, soon = put(service, 100, 600_000), put(service, 200, 100)
    assert soon.future.get(120_000) is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
    assert not late.future.is_done


def test_many_wakeups_do_not_shorten_the_deadline(service):
    """4.9 counted wake-ups: beside many acknowledgements a big message timed out early."""
    request = put(service, 1_000_000, 60_000)
    for offset in range(1, 2000):
        acknowledge(service, offset)
    assert not request.future.is_done
    acknowledge(service, 1_000_000)
    assert request.future.get(60_000) is PutMessageStatus.PUT_OK


def test_a_round_completes_in_order_of_arrival(service):
    done = []
    for number, offset in enumerate((300, 100, 200)):
        put(service, offset).future.then(lambda _status, number=number: done.append(number))
    acknowledge(service, 300)
    wait_until(lambda: len(done) == 3)
    assert done == [0, 1, 2]


def test_shutdown_answers_what_waits_and_what_comes_later():
    service = new_service()
    service.start()
    request = put(service, 100)
    service.shutdown()
    assert request.future.get(0) is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
    assert put(service, 100).future.get(0) is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
    service.shutdown()


def test_every_request_of_many_threads_is_answered_once(service):
    answers, count = [], 500

    def puts(first: int) -> None:
        for offset in range(first, count * 4, 4):
            request = GroupCommitRequest(offset, 60_000)
            request.future.then(answers.append)
            service.put_request(request)

    threads = [threading.Thread(target=puts, args=(first,)) for first in range(1, 5)]
    for thread in threads:
        thread.start()
    for offset in range(0, count * 4 + 10, 10):
        acknowledge(service, offset)
    for thread in threads:
        thread.join(240)
    wait_until(lambda: service.waiting_requests() == 0 and len(answers) >= count * 4 - 3)
    assert set(answers) == {PutMessageStatus.PUT_OK}
    assert service._by_deadline == []
