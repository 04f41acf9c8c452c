"""CLEAN_EXPIRED_CONSUMEQUEUE (306): the queues of topics that are quiet go on counting."""
import pytest

from rmqha.common.protocol import request_code, response_code
from tests.broker.support import bodies, running_broker

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
BEFORE, AFTER = 7, 3


def _expire(broker, topic):
    """Delete all messages of a queue from the log."""
    for _ in range(8):
        broker.send("Busy", b"-" * 200_000)
    broker.next_offset("Busy")
    log = broker.store.commit_log
    log.delete_expired_file(0, 0, 0, True)
    assert broker.store.get_consume_queue(topic, 0).get_last_offset() < log.get_min_offset()


def _clean(broker):
    assert broker.call(request_code.CLEAN_EXPIRED_CONSUMEQUEUE).code == response_code.SUCCESS


@pytest.mark.parametrize("topic", ["Quiet", "%RETRY%billing"])
def test_group_of_a_quiet_queue_gets_what_comes_after_the_cleaning(tmp_path, topic):
    with running_broker(tmp_path) as broker:
        broker.heartbeat("billing", "Quiet")  # which makes the retry topic
        for number in range(BEFORE):
            broker.send(topic, b"before %d" % number)
        assert broker.next_offset(topic) == BEFORE
        _expire(broker, topic)
        _clean(broker)
        sent = [broker.send(topic, b"after %d" % number) for number in range(AFTER)]
        assert [int(answer.ext_fields["queueOffset"]) for answer in sent] == list(range(BEFORE, BEFORE + AFTER))
        assert broker.next_offset(topic) == BEFORE + AFTER
        assert bodies(broker.pull(topic, BEFORE)) == [b"after %d" % number for number in range(AFTER)]
    with running_broker(tmp_path) as broker:  # nor does it begin again after a restart
        assert broker.next_offset(topic) == BEFORE + AFTER
        assert bodies(broker.pull(topic, BEFORE)) == [b"after %d" % number for number in range(AFTER)]


def test_cleaned_queue_counts_on_after_a_restart(tmp_path):
    with running_broker(tmp_path) as broker:
        for number in range(BEFORE):
            broker.send("Quiet", b"before %d" % number)
        broker.next_offset("Quiet")
        _expire(broker, "Quiet")
        _clean(broker)
    with running_broker(tmp_path) as broker:
        assert int(broker.send("Quiet", b"after").ext_fields["queueOffset"]) == BEFORE


def test_half_topic_counts_on(tmp_path):
    with running_broker(tmp_path) as broker:
        for _ in range(BEFORE):
            broker.send("Quiet", b"half", properties={"TRAN_MSG": "true", "PGROUP": "producers"})
        broker.next_offset(HALF)
        _expire(broker, HALF)
        _clean(broker)
        answer = broker.send("Quiet", b"half", properties={"TRAN_MSG": "true", "PGROUP": "producers"})
        assert int(answer.ext_fields["queueOffset"]) == BEFORE


def test_expired_queue_of_an_unknown_topic_goes(tmp_path):
    with running_broker(tmp_path) as broker:
        broker.send("Gone", b"x")
        broker.next_offset("Gone")
        _expire(broker, "Gone")
        del broker.controller.topic_config_manager.topic_config_table["Gone"]
        _clean(broker)
        assert "Gone" not in broker.store.consume_queue_table and "Busy" in broker.store.consume_queue_table
