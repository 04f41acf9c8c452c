"""Admin requests of a kind take turns; consumers' requests have their own threads."""
import threading

import pytest

from rmqha.broker.processor import admin_handlers
from rmqha.broker.processor.admin_handlers import AdminTurns
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import GetConsumerStatusRequestHeader, QueryTopicConsumeByWhoRequestHeader
from rmqha.common.protocol.client_headers import GetMaxOffsetRequestHeader, SearchOffsetRequestHeader
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from tests.support.wait import wait_until


@pytest.fixture
def crowd():
    """Runs a code in threads that all wait; gives how many are inside, and lets them go in the end."""
    gate, inside, answers, threads = threading.Event(), [], [], []

    def serve():
        inside.append(1)
        gate.wait(240)
        return RemotingCommand.create_response_command(response_code.SUCCESS, None)

    def begin(turns, code, count):
        threads.extend(threading.Thread(target=lambda: answers.append(turns.run(code, serve))) for _ in range(count))
        for thread in threads:
            thread.start()
        return inside, answers

    def end():
        gate.set()
        for thread in threads:
            thread.join(240)
    yield begin, end
    end()


def test_what_computes_takes_turns(crowd):
    begin, end = crowd
    inside, answers = begin(AdminTurns(), request_code.GET_ALL_TOPIC_CONFIG, 6)
    wait_until(lambda: len(inside) == admin_handlers.COMPUTING_AT_ONCE, 60_000)
    assert not answers
    end()
    assert len(inside) == len(answers) == 6


def test_what_waits_for_clients_is_refused_when_too_many_wait(crowd):
    begin, end = crowd
    inside, answers = begin(AdminTurns(), request_code.GET_CONSUMER_RUNNING_INFO, admin_handlers.WAITING_AT_ONCE + 3)
    wait_until(lambda: len(answers) == 3, 60_000)
    assert {answer.code for answer in answers} == {response_code.SYSTEM_BUSY}
    assert len(inside) == admin_handlers.WAITING_AT_ONCE
    end()
    assert sum(answer.code == response_code.SUCCESS for answer in answers) == admin_handlers.WAITING_AT_ONCE


def test_consumers_are_served_while_all_admin_threads_are_taken(broker):
    broker.send("T")
    broker.next_offset("T")
    turns = broker.controller.admin_turns
    with turns.computing, turns.computing:
        header = QueryTopicConsumeByWhoRequestHeader("T")
        askers = [threading.Thread(target=broker.call, args=(request_code.QUERY_TOPIC_CONSUME_BY_WHO, header))
                  for _ in range(20)]
        for asker in askers:
            asker.start()
        pool = broker.controller.pools.admin_broker_executor
        wait_until(lambda: pool.queue_size() > 0, 60_000, "all 16 threads are taken")
        assert broker.call(request_code.GET_MAX_OFFSET, GetMaxOffsetRequestHeader("T", 0)).ext_fields == {"offset": "1"}
        answer = broker.call(request_code.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetRequestHeader("T", 0, 0))
        assert answer.code == response_code.SUCCESS
    for asker in askers:
        asker.join(240)


def test_question_to_many_silent_consumers_ends(broker, monkeypatch):
    monkeypatch.setattr("rmqha.broker.client.broker2_client.ALL_ANSWERS_S", -1.0)
    broker.heartbeat("readers", "T")
    answer = broker.call(request_code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
                         GetConsumerStatusRequestHeader("T", "readers", None))
    assert answer.code == response_code.SUCCESS and b"consumerTable" in answer.body
