"""Producers, consumers, transactions, requests and admin calls with rmqha's own servers in this process."""
import threading
from collections import Counter
from contextlib import contextmanager

import pytest

from rmqha.client import results
from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus, MessageListenerConcurrently
from rmqha.client.exception import MQBrokerException, MQClientException, RequestTimeoutException
from rmqha.client.hooks import LocalTransactionState, TransactionListener
from rmqha.client.impl.consumer import rebalance
from rmqha.client.impl.mq_client_manager import MQClientManager
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.producer.request_response_future import RequestCallback, select_message_queue_by_hash
from rmqha.client.producer.transaction_mq_producer import TransactionMQProducer
from rmqha.client.results import PullCallback, PullStatus, SendCallback, SendStatus
from rmqha.common.message.message import Message
from rmqha.common.protocol import response_code
from rmqha.common.protocol.client_bodies import CMResult
from rmqha.common.subscriptions import ConsumeFromWhere, MessageModel
from rmqha.remoting.exception import RemotingException
from tests.support.wait import own_threads, wait_until

# Producers, consumers and admin calls with rmqha's own servers in this process.

OK, LATER = ConsumeConcurrentlyStatus.CONSUME_SUCCESS, ConsumeConcurrentlyStatus.RECONSUME_LATER
TIMEOUT_MS = 30_000
FOREVER = 2**62


@pytest.fixture(scope="module")
def producer(servers):
    patient = DefaultMQProducer("client_tests", servers.namesrv)
    # A retry would send a second message.
    patient.send_msg_timeout = TIMEOUT_MS
    with patient as running:
        yield running


@pytest.fixture
def make_topic(servers, producer):
    """make_topic("Name", 4) -> a new topic with four queues on each broker."""
    def make(prefix, queues=4):
        topic = servers.unique(prefix)
        producer.admin.create_topic("TBW102", topic, queues)
        wait_until(lambda: _queues(producer, topic) == 2 * queues, 60_000, "the queues on each broker")
        return topic

    return make


def _queues(producer, topic):
    try:
        return len(producer.fetch_publish_message_queues(topic))
    except MQClientException:
        return 0


class Seen(MessageListenerConcurrently):
    """A listener that records messages; bodies in `fail_once` get RECONSUME_LATER the first time."""

    def __init__(self, fail_once=()):
        self.messages = []
        self._fail_once = set(fail_once)
        self._lock = threading.Lock()

    def consume_message(self, msgs, context):
        with self._lock:
            for msg in msgs:
                if msg.body in self._fail_once:
                    self._fail_once.remove(msg.body)
                    return LATER
            self.messages.extend(msgs)
        return OK

    @property
    def bodies(self):
        """Return how often each body arrived."""
        with self._lock:
            return Counter(msg.body for msg in self.messages)


@contextmanager
def consuming(servers, group, topic, listener, expression="*", kind=None, **settings):
    consumer = DefaultMQPushConsumer(group, servers.namesrv, listener)
    consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    for name, value in settings.items():
        setattr(consumer, name, value)
    consumer.subscribe(topic, expression, kind)
    with consumer:
        yield consumer


def send_many(producer, topic, count, **message):
    return [producer.send(Message(topic, b"%d" % number, **message), TIMEOUT_MS) for number in range(count)]


def once(count):
    return Counter(b"%d" % number for number in range(count))


def test_every_message_is_consumed_once_and_the_group_resumes_where_it_left_off(servers, producer, make_topic):
    topic, group = make_topic("Once"), servers.unique("g")
    results = send_many(producer, topic, 100)
    assert {result.send_status for result in results} == {SendStatus.SEND_OK}
    assert {result.message_queue.brokerName for result in results} == {"broker-a", "broker-b"}
    first, second = Seen(), Seen()
    with consuming(servers, group, topic, first) as consumer:
        wait_until(lambda: len(first.messages) >= 100, 60_000, "100 messages")
        store = consumer.default_mq_push_consumer_impl.offset_store
        wait_until(lambda: sum(store.clone_offset_table(topic).values()) == 100, 60_000, "all count as consumed")
    assert first.bodies == once(100)
    producer.send(Message(topic, b"after"))
    with consuming(servers, group, topic, second):
        wait_until(lambda: second.messages, 60_000, "the later message")
    assert second.bodies == Counter([b"after"])


def test_topic_is_created_by_its_first_message(servers, producer):
    topic, seen = servers.unique("New"), Seen()
    assert producer.send(Message(topic, b"0")).send_status is SendStatus.SEND_OK
    with consuming(servers, servers.unique("g"), topic, seen):
        wait_until(lambda: seen.messages, 60_000)
    wait_until(lambda: _queues(producer, topic) >= 4, 60_000, "the client's four queues, not the default topic's eight")


def test_consumed_message_equals_the_sent_one(servers, producer, make_topic):
    topic, seen = make_topic("Same"), Seen()
    message = Message(topic, b"body" * 3000, tags="red", keys=["k1", "k2"], flag=5)
    message.put_user_property("colour", "grün")
    result = producer.send(message)
    with consuming(servers, servers.unique("g"), topic, seen):
        wait_until(lambda: seen.messages, 60_000)
    got = seen.messages[0]
    assert (got.topic, got.body, got.tags, got.keys, got.flag) == (topic, b"body" * 3000, "red", "k1 k2", 5)
    assert got.get_user_property("colour") == "grün" and got.msg_id == result.msg_id
    assert got.broker_name == result.message_queue.brokerName and got.queue_offset == result.queue_offset
    assert got.offset_msg_id == result.offset_msg_id


@pytest.mark.parametrize("expression, expected", [("red", 10), ("red || blue", 20), ("*", 30), ("green", 0)])
def test_tags_select_messages(servers, producer, expression, expected, make_topic):
    topic, seen = make_topic("Tags"), Seen()
    for number in range(30):
        producer.send(Message(topic, b"%d" % number, tags=("red", "blue", "pink")[number % 3]))
    producer.send(Message(topic, b"last", tags=expression.split(" ")[0].replace("*", "red")))
    with consuming(servers, servers.unique("g"), topic, seen, expression):
        wait_until(lambda: len(seen.messages) > expected, 60_000, "the tagged messages, and the last one")
    assert len(seen.messages) == expected + 1 and seen.bodies[b"last"] == 1


def test_message_to_reconsume_later_arrives_again_with_its_topic(servers, producer, make_topic):
    topic, seen = make_topic("Later"), Seen(fail_once=[b"3", b"7"])
    send_many(producer, topic, 10, tags="t")
    with consuming(servers, servers.unique("g"), topic, seen, "t"):
        wait_until(lambda: len(seen.messages) >= 8, 60_000, "the first eight")
        wait_until(lambda: len(seen.messages) >= 10, 60_000, "the two again")
    assert seen.bodies == once(10)
    again = {msg.body: msg for msg in seen.messages if msg.reconsume_times}
    assert set(again) == {b"3", b"7"} and {msg.topic for msg in again.values()} == {topic}


def test_new_group_knows_its_retry_topic_after_its_first_heartbeat(servers, make_topic):
    group = servers.unique("g")
    with consuming(servers, group, make_topic("Retried"), Seen()) as consumer:
        queues = consumer.default_mq_push_consumer_impl.rebalance_impl.topic_subscribe_info_table[f"%RETRY%{group}"]
        assert {queue.brokerName for queue in queues} == {"broker-a", "broker-b"}


def test_topic_created_after_the_consumer_is_consumed_once_a_poll_brings_its_route(
        servers, producer, monkeypatch):
    # No other rebalance within the test, except when the group changes, which happens before the topic exists.
    monkeypatch.setattr(rebalance, "WAIT_INTERVAL_MS", 600_000)
    topic, seen = servers.unique("LaterTopic"), Seen()
    with consuming(servers, servers.unique("g"), topic, seen, poll_name_server_interval=200) as consumer:
        taken = consumer.default_mq_push_consumer_impl.rebalance_impl.process_queue_table
        wait_until(lambda: len(taken) == 2, 60_000, "the retry queues, taken by a rebalance")
        producer.admin.create_topic("TBW102", topic, 4)
        wait_until(lambda: _queues(producer, topic) == 8, 60_000, "the queues on each broker")
        send_many(producer, topic, 10)
        wait_until(lambda: seen.bodies == once(10), 60_000, "the messages")


def test_exception_in_a_listener_means_reconsume_later(servers, producer, make_topic):
    topic, calls, done = make_topic("Raise"), [], threading.Event()

    def listener(messages):
        calls.append(messages)
        done.set()
        raise RuntimeError("not today")

    producer.send(Message(topic, b"x"))
    with consuming(servers, servers.unique("g"), topic, listener) as consumer:
        assert done.wait(240)
        store = consumer.default_mq_push_consumer_impl.offset_store
        wait_until(lambda: 1 in store.clone_offset_table(topic).values(), 60_000, "sent back counts as done here")


def test_ack_index_sends_the_rest_of_a_batch_back(servers, producer, make_topic):
    topic, sizes = make_topic("Ack"), []

    class HalfDone(Seen):
        def consume_message(self, msgs, context):
            super().consume_message(msgs, context)
            sizes.append(len(msgs))
            context.ack_index = 0
            return OK

    seen = HalfDone()
    producer.send_batch([Message(topic, b"%d" % number) for number in range(4)])
    with consuming(servers, servers.unique("g"), topic, seen, consume_message_batch_max_size=4) as consumer:
        wait_until(lambda: seen.messages, 60_000)
        impl = consumer.default_mq_push_consumer_impl
        wait_until(lambda: 4 in impl.offset_store.clone_offset_table(topic).values(), 60_000, "the batch to be done")
        wait_until(lambda: len(seen.messages) >= 7, 60_000, "the other three again")
    assert sizes[0] == 4


def test_two_consumers_of_a_group_share_the_queues(servers, producer, make_topic):
    topic, group, seen = make_topic("Share"), servers.unique("g"), [Seen(), Seen()]
    send_many(producer, topic, 1)
    with consuming(servers, group, topic, seen[0]) as first, consuming(servers, group, topic, seen[1]) as second:
        def share(consumer):
            table = consumer.default_mq_push_consumer_impl.rebalance_impl.process_queue_table
            return {queue for queue in list(table) if queue.topic == topic}

        wait_until(lambda: len(share(first)) == len(share(second)) == 4 and not share(first) & share(second), 60_000,
                   "four queues each")
        send_many(producer, topic, 40)
        wait_until(lambda: sum(len(listener.messages) for listener in seen) >= 41, 60_000, "all messages")
    assert all(len(listener.messages) >= 10 for listener in seen)


def test_new_group_starting_at_the_end_gets_only_later_messages(servers, producer, make_topic):
    topic, group, seen = make_topic("End"), servers.unique("g"), Seen()
    send_many(producer, topic, 3)
    # Sets the group's offsets to the end.
    with DefaultMQPullConsumer(group, servers.namesrv) as pulling:
        queues = pulling.fetch_subscribe_message_queues(topic)
        wait_until(lambda: sum(map(pulling.admin.max_offset, queues)) == 3, 60_000, "all are dispatched")
        for queue in queues:
            pulling.update_consume_offset(queue, pulling.admin.max_offset(queue))
        wait_until(lambda: sum(pulling.fetch_consume_offset(queue, True)
                               for queue in queues) == 3, 60_000)
    with consuming(servers, group, topic, seen, consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET):
        producer.send(Message(topic, b"new"))
        wait_until(lambda: seen.messages, 60_000)
    assert seen.bodies == Counter([b"new"])


def test_every_broadcasting_consumer_gets_everything(servers, producer, monkeypatch, tmp_path, make_topic):
    monkeypatch.setenv("HOME", str(tmp_path))
    topic, group, seen = make_topic("All"), servers.unique("g"), [Seen(), Seen()]
    send_many(producer, topic, 20)
    settings = {"message_model": MessageModel.BROADCASTING}
    with consuming(servers, group, topic, seen[0], instance_name="one", **settings), \
            consuming(servers, group, topic, seen[1], instance_name="two", **settings):
        wait_until(lambda: all(len(listener.messages) >= 20 for listener in seen), 60_000, "20 messages each")
    assert [listener.bodies for listener in seen] == [once(20)] * 2
    assert len(list(tmp_path.rglob("offsets.json"))) == 2


def test_full_cache_pauses_the_pull_loop_and_no_message_is_lost(servers, producer, make_topic):
    topic, go, seen = make_topic("Full"), threading.Event(), []

    def listener(messages):
        go.wait(240)
        seen.extend(messages)
        return OK

    for _ in range(5):
        producer.send_batch([Message(topic, b"x") for _ in range(40)])
    settings = {"pull_threshold_for_queue": 10, "consume_thread_max": 2, "consume_thread_min": 2}
    with consuming(servers, servers.unique("g"), topic, listener, **settings) as consumer:
        impl = consumer.default_mq_push_consumer_impl
        wait_until(lambda: impl._flow_control_times > 3, 60_000, "flow control")
        cached = [queue.msg_count for queue in impl.rebalance_impl.process_queue_table.values()]
        assert max(cached) <= 10 + consumer.pull_batch_size
        go.set()
        wait_until(lambda: len(seen) >= 200, 60_000, "all 200")


def test_subscription_after_start_and_suspend_and_resume(servers, producer, make_topic):
    first, second, seen = make_topic("Sub"), make_topic("Sub"), Seen()
    send_many(producer, first, 1)
    producer.send(Message(second, b"second"))
    with consuming(servers, servers.unique("g"), first, seen) as consumer:
        consumer.subscribe(second)
        wait_until(lambda: len(seen.messages) >= 2, 60_000, "one of each topic")
        consumer.suspend()
        assert consumer.default_mq_push_consumer_impl.pause
        producer.send(Message(second, b"third"))
        consumer.resume()
        wait_until(lambda: seen.bodies[b"third"], 60_000)


def test_unknown_expression_is_refused_at_start(servers):
    consumer = DefaultMQPushConsumer(servers.unique("g"), servers.namesrv, lambda messages: OK)
    with pytest.raises(MQClientException):
        consumer.subscribe("T", "||")
    consumer.shutdown()


def test_group_is_unique_per_instance_and_instances_are_shared_by_the_manager(servers):
    manager, group = MQClientManager(), servers.unique("g")
    first = DefaultMQProducer(group, servers.namesrv, client_manager=manager)
    second = DefaultMQProducer(group, servers.namesrv, client_manager=manager)
    other = DefaultMQProducer(group + "x", servers.namesrv, client_manager=manager)
    for each in (first, second, other):
        each.instance_name = "shared"
    with first:
        with pytest.raises(MQClientException, match="has been created before"):
            second.start()
        with other:
            assert other.api is first.api
        assert first.api.get_broker_cluster_info(TIMEOUT_MS).brokerAddrTable, "the first should stay connected"
    with pytest.raises(MQClientException, match="maybe started once"):
        first.start()


# Other ways to send


def test_asynchronous_oneway_batch_and_selected_sends_arrive(servers, producer, make_topic):
    topic, results, errors, seen = make_topic("Ways"), [], [], Seen()
    for number in range(20):
        producer.send_async(Message(topic, b"async%d" % number), SendCallback(results.append, errors.append))
    producer.send_oneway(Message(topic, b"oneway"))
    batch = producer.send_batch([Message(topic, b"batch%d" % number) for number in range(5)])
    chosen = {producer.send(Message(topic, b"chosen"), selector=select_message_queue_by_hash, arg="k").message_queue
              for _ in range(3)}
    with consuming(servers, servers.unique("g"), topic, seen):
        wait_until(lambda: len(seen.messages) >= 29 and len(results) == 20, 60_000, "29 messages")
    assert not errors and batch.msg_id.count(",") == 4 and len(chosen) == 1
    assert {result.send_status for result in results} == {SendStatus.SEND_OK}


class BrokerAIsGone(dict):
    """Addresses of brokers, with one that refuses for broker-a, even after routes are fetched again and unrouted
    addresses are removed every 30 s."""

    def __setitem__(self, name, addresses):
        super().__setitem__(name, {0: "127.0.0.1:1"} if name == "broker-a" else addresses)

    def __delitem__(self, name):
        assert name == "broker-a", "only broker-a should be missing from the routes"


def test_send_succeeds_when_a_broker_is_down(servers, producer, make_topic, monkeypatch):
    topic, done = make_topic("Gone"), []
    producer.send(Message(topic, b"0"))
    routes, gone = producer.default_mq_producer_impl.routes, BrokerAIsGone()
    for name, addresses in list(routes.broker_addr_table.items()):
        gone[name] = addresses
    monkeypatch.setattr(routes, "broker_addr_table", gone)
    results = [producer.send(Message(topic, b"x")) for _ in range(8)]
    for _ in range(8):
        producer.send_async(Message(topic, b"x"), SendCallback(done.append, done.append))
    wait_until(lambda: len(done) == 8)
    assert {result.message_queue.brokerName for result in results} == {"broker-b"}
    assert {result.message_queue.brokerName for result in done} == {"broker-b"}


# Pulling and admin calls


def test_pull_consumer_reads_a_queue_and_stores_its_offset(servers, producer, make_topic):
    topic, group = make_topic("Pull"), servers.unique("g")
    results = [producer.send(Message(topic, b"%d" % number, tags="ab"[number % 2])) for number in range(80)]
    with DefaultMQPullConsumer(group, servers.namesrv) as consumer:
        consumer.broker_suspend_max_time_millis = 100
        found = []
        queues = consumer.fetch_subscribe_message_queues(topic)
        wait_until(lambda: sum(map(consumer.admin.max_offset, queues)) == 80, what="all are dispatched")
        for queue in queues:
            result = consumer.pull(queue, "a", 0, 32)
            found += result.msg_found_list
            assert result.max_offset == sum(each.message_queue == queue for each in results)
            consumer.update_consume_offset(queue, result.next_begin_offset)
            wait_until(lambda queue=queue, result=result: consumer.fetch_consume_offset(queue, True)
                       == result.next_begin_offset)
            assert consumer.pull(queue, "*", result.max_offset, 32).pull_status is PullStatus.NO_NEW_MSG
            assert consumer.pull(queue, "*", 10**6, 32).pull_status is PullStatus.OFFSET_ILLEGAL
        assert len(found) == 40 and {msg.tags for msg in found} == {"a"}
        done = []
        consumer.pull_async(queue, "*", 0, 1, PullCallback(done.append, done.append))
        wait_until(lambda: done)
        assert len(done[0].msg_found_list) == 1
        for offset, count in ((-1, 1), (0, 0)):
            with pytest.raises(MQClientException):
                consumer.pull(queue, "*", offset, count)


def test_blocking_pull_is_answered_when_a_message_arrives(servers, producer, make_topic):
    topic = make_topic("Block")
    queue = producer.send(Message(topic, b"first")).message_queue
    with DefaultMQPullConsumer(servers.unique("g"), servers.namesrv) as consumer:
        wait_until(lambda: consumer.admin.max_offset(queue) == 1, what="the first is dispatched")
        answers = []
        thread = threading.Thread(
            target=lambda: answers.append(consumer.pull_block_if_not_found(queue, "*", 1, 32)))
        thread.start()
        wait_until(lambda: servers.brokers[queue.brokerName].pull_request_hold_service.pull_request_table)
        producer.send(Message(topic, b"second"), queue=queue)
        thread.join(240)
    assert [msg.body for msg in answers[0].msg_found_list] == [b"second"]


def test_messages_are_found_by_key_and_by_both_ids(servers, producer, make_topic):
    topic = make_topic("Find")
    results = [producer.send(Message(topic, b"%d" % number, keys=f"key-{number % 5}")) for number in range(20)]
    found = wait_until(lambda: _query(producer, topic, "key-3", 4), 60_000, "the index")
    assert sorted(int(msg.body) for msg in found) == [3, 8, 13, 18]
    by_id = wait_until(lambda: _found(lambda: producer.admin.query_message_by_uniq_key(topic, results[7].msg_id)),
                       what="the index, maybe of the other broker")
    assert [msg.body for msg in by_id] == [b"7"]
    assert producer.admin.view_message(results[7].offset_msg_id).body == b"7"
    for call in (lambda: producer.admin.query_message(topic, "nothing", 10, 0, FOREVER),
                 lambda: producer.admin.view_message("no id")):
        with pytest.raises(MQClientException) as failure:
            call()
        assert failure.value.response_code == response_code.NO_MESSAGE


def _query(producer, topic, key, expected):
    found = _found(lambda: producer.admin.query_message(topic, key, 10, 0, FOREVER))
    return found if len(found) == expected else None


def _found(ask):
    try:
        return ask().message_list
    except MQClientException:
        return []


def test_topics_offsets_and_broker_information_are_returned(servers, producer):
    topic = servers.unique("Made")
    producer.admin.create_topic("TBW102", topic, 3)
    wait_until(lambda: _queues(producer, topic) == 6, 60_000, "three queues on each broker")
    queue = producer.send(Message(topic, b"x")).message_queue
    wait_until(lambda: producer.admin.max_offset(queue) == 1, 60_000, "the message is in its queue")
    assert producer.admin.min_offset(queue) == 0
    stored_at = producer.admin.earliest_msg_store_time(queue)
    assert producer.admin.search_offset(queue, stored_at) == 0
    info = producer.api.get_broker_cluster_info(TIMEOUT_MS)
    assert set(info.brokerAddrTable) == {"broker-a", "broker-b"}
    addr = info.brokerAddrTable[queue.brokerName].brokerAddrs[0]
    assert int(producer.api.get_broker_runtime_info(addr, TIMEOUT_MS).table["commitLogMaxOffset"]) > 0
    assert producer.api.get_topic_stats_info(addr, topic, TIMEOUT_MS).offsetTable[queue].maxOffset == 1
    assert producer.api.get_broker_config(addr, TIMEOUT_MS)["brokerName"] == queue.brokerName
    assert topic in producer.api.get_topic_list_from_name_server(TIMEOUT_MS).topicList
    assert topic in producer.api.get_all_topic_config(addr, TIMEOUT_MS).topicConfigTable
    with pytest.raises(MQBrokerException):
        producer.api.get_topic_stats_info(addr, "nowhere", TIMEOUT_MS)
    with pytest.raises(MQClientException, match="conflict with system topic"):
        producer.admin.create_topic("TBW102", "TBW102", 1)


# Requests of brokers to clients


def test_admins_can_inspect_a_consumer_make_it_consume_and_reset_its_offsets(servers, producer, make_topic):
    topic, group, seen = make_topic("Ask", 1), servers.unique("g"), Seen()
    queue = producer.send(Message(topic, b"0")).message_queue
    for number in range(1, 10):
        producer.send(Message(topic, b"%d" % number), queue=queue)
    addr = servers.brokers[queue.brokerName].broker_addr
    with consuming(servers, group, topic, seen) as consumer:
        wait_until(lambda: len(seen.messages) >= 10, 60_000)
        client_id = consumer.default_mq_push_consumer_impl.mq_client_factory.client_id
        info = producer.api.get_consumer_running_info(addr, group, client_id, True, TIMEOUT_MS)
        assert queue in info.mqTable and info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert "ConsumeMessageThread_" in info.jstack and info.properties["consumerGroup"] == group
        result = producer.api.consume_message_directly(
            addr, group, client_id, seen.messages[0].offset_msg_id, TIMEOUT_MS)
        assert result.consumeResult is CMResult.CR_SUCCESS and len(seen.messages) == 11
        wait_until(lambda: producer.api.invoke_broker_to_get_consumer_status(
            addr, topic, group, None, TIMEOUT_MS).get(client_id, {}).get(queue) == 10)
        consumer.default_mq_push_consumer_impl.persist_consumer_offset()
        offsets = producer.api.invoke_broker_to_reset_offset(addr, topic, group, 0, True, TIMEOUT_MS)
        assert offsets[queue] == 0
        wait_until(lambda: len(seen.messages) >= 21, 60_000, "all ten again")
    with pytest.raises(MQClientException):
        producer.api.get_consumer_running_info(addr, group, client_id, False, TIMEOUT_MS)


def test_clients_leave_no_thread_running(servers, make_topic):
    before = own_threads()
    topic = make_topic("Thread")
    with DefaultMQProducer(servers.unique("p"), servers.namesrv) as running:
        running.send(Message(topic, b"x"))
        with consuming(servers, servers.unique("g"), topic, Seen()):
            pass
    wait_until(lambda: not _threads_since(before), 60_000, "the client's threads to end")


def _threads_since(before):
    """Return the threads started since, except those of the servers' pools."""
    pools_of_servers = ("Pull", "Send", "Query", "Admin", "Heartbeat", "Netty", "RemotingExecutor")
    return [thread for thread in own_threads() - before if not thread.name.startswith(pools_of_servers)]


def test_consumer_that_cannot_reach_its_name_server_leaves_no_thread_running():
    before = own_threads()
    consumer = DefaultMQPushConsumer("alone", "127.0.0.1:1", lambda messages: OK)
    consumer.subscribe("T")
    with pytest.raises(RemotingException), consumer:
        raise AssertionError("not reached")
    wait_until(lambda: not _threads_since(before), 60_000, "its threads to end")


# Transactions with rmqha's own servers in this process.

COMMIT, ROLLBACK, UNKNOW = (LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE,
                            LocalTransactionState.UNKNOW)
LONG_MS = 60_000


class Outcomes(TransactionListener):
    """Returns the argument of the send, or raises it if it is an exception; answers later checks with commit."""

    def __init__(self):
        self.asked = []
        self._lock = threading.Lock()

    def execute_local_transaction(self, msg, arg):
        if isinstance(arg, Exception):
            raise arg
        return arg

    def check_local_transaction(self, msg):
        with self._lock:
            self.asked.append((msg.topic, bytes(msg.body), msg.flag, msg.transaction_id))
        return COMMIT


@pytest.fixture
def checking(servers):
    """Let the brokers check transactions after a second, every second."""
    configs = [broker.broker_config for broker in servers.brokers.values()]
    for config in configs:
        config.transactionTimeOut = config.transactionCheckInterval = 1000
    for broker in servers.brokers.values():
        broker.transactional_message_check_service.wakeup()
    yield
    for config in configs:
        config.transactionTimeOut, config.transactionCheckInterval = 6_000, 60_000


def test_only_committed_messages_arrive(servers, make_topic):
    topic, listener, seen = make_topic("Trans"), Outcomes(), Seen()
    with consuming(servers, servers.unique("trans_readers"), topic, seen):
        with TransactionMQProducer(servers.unique("trans"), servers.namesrv, listener) as transactions:
            for body, outcome in ((b"yes", COMMIT), (b"no", ROLLBACK), (b"big" * 4000, COMMIT)):
                result = transactions.send_message_in_transaction(Message(topic, body, tags="T"), outcome)
                assert (result.send_status, result.local_transaction_state) == (SendStatus.SEND_OK, outcome)
                assert result.message_queue.topic == topic
            wait_until(lambda: len(seen.bodies) == 2, LONG_MS, "the committed messages")
    assert dict(seen.bodies) == {b"yes": 1, b"big" * 4000: 1}
    assert {msg.tags for msg in seen.messages} == {"T"}


def test_broker_checks_transactions_that_were_not_ended(servers, make_topic, checking):
    topic, listener, seen = make_topic("Late"), Outcomes(), Seen()
    with consuming(servers, servers.unique("late_readers"), topic, seen):
        with TransactionMQProducer(servers.unique("late"), servers.namesrv, listener) as transactions:
            unsure = Message(topic, b"unsure", flag=7)
            transactions.send_message_in_transaction(unsure, UNKNOW)
            failed = transactions.send_message_in_transaction(Message(topic, b"failed"), RuntimeError("disk full"))
            assert failed.local_transaction_state is UNKNOW
            wait_until(lambda: len(seen.bodies) == 2, LONG_MS, "the messages that were asked about")
    assert {asked[:3] for asked in listener.asked} == {(topic, b"unsure", 7), (topic, b"failed", 0)}
    assert unsure.transaction_id in {asked[3] for asked in listener.asked}
    assert {msg.flag for msg in seen.messages if msg.body == b"unsure"} == {7}


def test_transaction_listener_is_required(servers):
    with TransactionMQProducer(servers.unique("none"), servers.namesrv) as transactions:
        with pytest.raises(MQClientException, match="TransactionListener is null"):
            transactions.send_message_in_transaction(Message("Any", b"x"))


# Requests and their replies with rmqha's own servers in this process.

LONG_MS = 60_000


class Replier(MessageListenerConcurrently):
    """Replies to each request with its body reversed, unless the body asks for silence."""

    def __init__(self, sender):
        self._sender = sender

    def consume_message(self, msgs, context):
        for msg in msgs:
            if msg.body != b"silence":
                self._sender.send(results.create_reply_message(msg, msg.body[::-1]))
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS


@pytest.fixture
def replied(servers, make_topic, producer):
    """(topic with a consumer that replies, a producer of requests on an instance of its own)."""
    topic = make_topic("Requests")
    with consuming(servers, servers.unique("repliers"), topic, Replier(producer)):
        with DefaultMQProducer(servers.unique("requests"), servers.namesrv, client_manager=MQClientManager()) as sender:
            yield topic, sender


def test_reply_arrives_at_the_sender_of_the_request(replied):
    topic, sender = replied
    for body in (b"abc", b"x" * 20_000):
        reply = sender.request(Message(topic, body), LONG_MS)
        assert (reply.body, reply.topic) == (body[::-1], "DefaultCluster_REPLY_TOPIC")
        assert int(reply.get_property("ARRIVE_TIME")) >= int(reply.get_property("PUSH_REPLY_TIME")) > 0


def test_callback_gets_the_reply_or_the_timeout(replied):
    topic, sender = replied
    got, done = [], threading.Semaphore(0)

    def note(what):
        got.append(what)
        done.release()

    sender.request_async(Message(topic, b"abc"), RequestCallback(note, note), LONG_MS)
    assert done.acquire(timeout=LONG_MS / 1000) and got[0].body == b"cba"
    sender.request_async(Message(topic, b"silence"), RequestCallback(note, note), 2000)
    assert done.acquire(timeout=LONG_MS / 1000) and isinstance(got[1], RequestTimeoutException)
    wait_until(lambda: not sender.default_mq_producer_impl._requests, LONG_MS, "no request left")


def test_request_without_reply_times_out(replied):
    topic, sender = replied
    with pytest.raises(RequestTimeoutException, match="wait reply message timeout, 2000 ms"):
        sender.request(Message(topic, b"silence"), 2000)


def test_request_that_can_not_be_sent_raises_the_reason(replied):
    _topic, sender = replied
    with pytest.raises(MQClientException, match="send request message to <.*> fail") as error:
        sender.request(Message("bad topic!", b"x"), LONG_MS)
    assert "contains illegal characters" in str(error.value.__cause__)


def test_ordinary_message_has_no_reply():
    with pytest.raises(MQClientException, match=r"property\[CLUSTER\] is null"):
        results.create_reply_message(Message("Any", b"x"), b"y")
