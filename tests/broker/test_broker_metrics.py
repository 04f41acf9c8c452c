"""A broker's metrics compared with the messages actually sent, pulled and acknowledged."""
import errno
import re
import time
from types import SimpleNamespace

import pytest

from rmqha.broker.metrics.broker_metrics import BROKER_METRICS, FAULTS, BrokerMetrics
from rmqha.common import metrics as pace
from rmqha.common import stats
from rmqha.common.metrics import MetricsNames
from rmqha.common.protocol import response_code
from rmqha.store.message_store_config import FlushDiskType
from tests.broker.support import new_controller, running_broker
from tests.support.in_process import running_name_server
from tests.support.ports import free_port
from tests.support.raw_remoting import Scrape, http_get, metrics_port
from tests.support.wait import at_least, wait_until

TOPIC, GROUP = "Orders", "billing"


def sample(broker) -> None:
    """Do what the timers do every ten seconds and every second."""
    for item_set in broker.controller.broker_stats_manager.stats_table.values():
        for item in item_set.items():
            item.sampling_in_seconds()
    broker.store.store_stats_service.sampling()


@pytest.fixture(scope="module")
def busy(tmp_path_factory):
    """A broker with 40 messages in four queues of a topic; a group has consumed 10 of them from queue 0."""
    with running_broker(tmp_path_factory.mktemp("busy"), metricsNames=MetricsNames.both) as broker:
        for number in range(40):
            assert broker.send(TOPIC, b"x" * 100, number % 4).code == response_code.SUCCESS
        broker.next_offset(TOPIC)
        broker.heartbeat(GROUP, TOPIC, client_id="me@1", producers=("shop",))
        assert broker.pull(TOPIC, 0, group=GROUP, queue_id=0).code == response_code.SUCCESS
        broker.controller.consumer_offset_manager.commit_offset("me", GROUP, TOPIC, 0, 10)
        broker.controller.consumer_offset_manager.commit_offset("me", GROUP, TOPIC, 1, 4)
        # Let the oldest message get an age.
        at_least(0.02)
        sample(broker)
        with metrics_port(BrokerMetrics(broker.controller)) as port:
            yield broker, port


@pytest.fixture(scope="module", autouse=True)
def scraped(busy):
    """The metrics before any test adds to them, and the put rate at that moment, since samples are taken
    concurrently."""
    broker, port = busy
    item = broker.controller.broker_stats_manager.get_stats_item(stats.TOPIC_PUT_NUMS, TOPIC)

    def both():
        window, found = item.get_stats_data_in_minute(), Scrape(port)
        return (found, window) if item.get_stats_data_in_minute() == window else None
    return wait_until(both, what="a scrape between two samples")


@pytest.fixture(scope="module")
def scrape(scraped):
    return scraped[0]


def test_counts_and_bytes_equal_those_of_the_store(busy, scrape):
    broker, _port = busy
    assert scrape.value("rmqha_puts_total", cluster="DefaultCluster", broker="broker-a", broker_id="0") == 40
    assert scrape.value("rmqha_put_bytes_total") == broker.store.get_max_phy_offset() \
        == scrape.value("rocketmq_brokeruntime_commitlog_maxoffset") == scrape.value("rmqha_log_end_offset")
    assert scrape.value("rmqha_gets_total", found="true") == 1 and scrape.value("rmqha_messages_got_total") == 10
    assert scrape.value("rocketmq_brokeruntime_putmessage_times_total") == 40
    assert scrape.value("rocketmq_brokeruntime_put_message_average_size") == broker.store.get_max_phy_offset() / 40
    assert scrape.value("rmqha_scrape_incomplete") == 0


def test_topic_offset_is_the_sum_of_its_queues(scrape):
    labels = {"cluster": "DefaultCluster", "broker": "broker-a", "topic": TOPIC}
    assert [one.labels for one in scrape.all("rocketmq_producer_offset", topic=TOPIC)] == [labels]
    assert scrape.value("rocketmq_producer_offset", **labels) == 40
    assert not scrape.all("rocketmq_producer_offset", topic=f"%RETRY%{GROUP}")
    assert scrape.value("rocketmq_topic_retry_offset", topic=f"%RETRY%{GROUP}") == 0


def test_rates_cover_the_last_minute(busy, scraped):
    (broker, _port), (scrape, window) = busy, scraped
    assert window.sum == 40 and scrape.value("rocketmq_producer_tps", topic=TOPIC) == pytest.approx(window.tps)
    assert scrape.value("rocketmq_producer_message_size", topic=TOPIC) == pytest.approx(
        window.tps * broker.store.get_max_phy_offset() / 40, rel=0.01)
    got = scrape.value("rocketmq_consumer_tps", cluster="DefaultCluster", broker="broker-a", topic=TOPIC, group=GROUP)
    assert got == pytest.approx(window.tps / 4, rel=0.2)
    assert scrape.value("rocketmq_broker_tps", brokerIP=broker.address, broker="broker-a") == pytest.approx(
        window.tps, rel=0.2)
    assert scrape.value("rocketmq_broker_qps") == pytest.approx(got, rel=0.2)


def test_group_lag_is_the_uncommitted_part(scrape):
    labels = {"group": GROUP, "topic": TOPIC, "countOfOnlineConsumers": "1", "msgModel": "1"}
    # Its two queues lag by 0 and 6, and the two without an offset by 20.
    assert scrape.value("rocketmq_group_diff", **labels) == 26
    assert scrape.value("rocketmq_consumer_offset", topic=TOPIC, group=GROUP) == 14
    assert 20 <= scrape.value("rocketmq_group_get_latency_by_storetime", topic=TOPIC, group=GROUP) < 600_000
    assert scrape.value("rocketmq_group_count", group=GROUP, localaddr="me@1") == 1
    assert scrape.value("rocketmq_producer_count", group="shop") == 1


def test_5x_names_have_the_same_values(scrape):
    node = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}
    assert scrape.value("rocketmq_messages_in_total", topic=TOPIC, is_system="false", **node) == 40
    assert scrape.value("rocketmq_messages_out_total", topic=TOPIC, consumer_group=GROUP, is_retry="false") == 10
    assert scrape.value("rocketmq_throughput_in_total", topic=TOPIC) == scrape.value("rmqha_put_bytes_total")
    lag = {"consumer_group": GROUP, "topic": TOPIC, "is_retry": "false", "is_system": "false"}
    # A queue without an offset counts as consumed.
    assert scrape.value("rocketmq_consumer_lag_messages", **lag) == 6
    assert scrape.value("rocketmq_consumer_lag_latency", **lag) >= 20
    assert scrape.value("rocketmq_consumer_connections", consumer_group=GROUP, consume_mode="push") == 1
    assert scrape.value("rocketmq_producer_connections") == 1
    assert scrape.value("rocketmq_broker_permission") == 6
    assert scrape.value("rocketmq_storage_size", storage_type="local") == scrape.value("rmqha_log_end_offset")
    assert {one.labels["processor"] for one in scrape.all("rocketmq_processor_watermark")} == {
        "send", "pull", "query_message", "client_manager", "heartbeat", "admin"}


def test_every_put_is_in_the_histogram_of_acknowledgements(scrape):
    assert scrape.value("rmqha_ack_latency_seconds_count") == 40
    assert scrape.value("rmqha_ack_latency_seconds_bucket", le="+Inf") == 40


def test_histogram_continues_after_the_minute_ends(busy):
    broker, _port = busy
    service = broker.store.store_stats_service
    before = service.put_times()
    service._last_print_timestamp = 0
    service._print_tps()
    assert service.put_times() == before and sum(before.counts) == 40
    assert sum(service.last_distribution()) == 40
    service.set_put_message_entire_time_max(70, 2)
    after = service.put_times()
    assert sum(after.counts) == 42 and after.sum_s == pytest.approx(before.sum_s + 0.14)
    slow = [bound for bound, new, old in zip(after.bounds_s, after.counts, before.counts) if new != old]
    assert slow == [0.075]


def test_every_exposed_metric_is_documented_with_its_labels(scrape):
    known = {metric.name: metric for metric in BROKER_METRICS}
    for name, family in scrape.families.items():
        if name.startswith(("rmqha_", "rocketmq_")) and not name.startswith("rmqha_scrape_"):
            metric = known[name + "_total" if family.type == "counter" else name]
            assert family.type == metric.kind and family.documentation == metric.meaning
            for one in family.samples:
                assert set(one.labels) - {"le"} == set(metric.labels)


def test_configured_metric_names_are_exposed(busy, monkeypatch):
    broker, port = busy
    for names, exporter, otel in ((MetricsNames.exporter, True, False), (MetricsNames.otel, False, True)):
        monkeypatch.setattr(broker.controller.broker_config, "metricsNames", names)
        told = Scrape(port).families
        assert ("rocketmq_producer_offset" in told, "rocketmq_brokeruntime_put_tps10" in told) == (exporter, exporter)
        assert ("rocketmq_messages_in" in told, "rmqha_puts" in told) == (otel, True)


def test_the_oldest_message_is_looked_up_once(busy, monkeypatch):
    broker, port = busy
    Scrape(port)
    looked_up = []
    real = broker.store.get_message_store_timestamp
    monkeypatch.setattr(broker.store, "get_message_store_timestamp",
                        lambda topic, *place: looked_up.append((topic, *place)) or real(topic, *place))
    Scrape(port)
    assert [one for one in looked_up if one[0] == TOPIC] == []
    broker.controller.consumer_offset_manager.commit_offset("me", GROUP, TOPIC, 1, 5)
    Scrape(port)
    assert [one for one in looked_up if one[0] == TOPIC] == [(TOPIC, 1, 5)]


def test_scrape_of_many_topics_yields_to_other_threads(busy, monkeypatch):
    broker, port = busy
    table = broker.controller.topic_config_manager.topic_config_table
    config = table[TOPIC]
    many = {f"many-{number}": config for number in range(3000)}
    monkeypatch.setattr(broker.controller.topic_config_manager, "topic_config_table", {**table, **many})
    pauses = []
    monkeypatch.setattr(pace, "time", SimpleNamespace(monotonic=time.monotonic, sleep=pauses.append))
    assert len(Scrape(port).all("rocketmq_producer_offset")) > 3000
    assert len(pauses) >= 3000 * config.writeQueueNums / pace.STEPS


def test_every_flush_is_timed_and_a_full_disk_is_exposed(tmp_path, monkeypatch):
    with running_broker(tmp_path, flushDiskType=FlushDiskType.SYNC_FLUSH) as broker, \
            metrics_port(BrokerMetrics(broker.controller)) as port:
        for _ in range(3):
            assert broker.send(TOPIC).code == response_code.SUCCESS
        scrape = Scrape(port)
        assert scrape.value("rmqha_flush_latency_seconds_count") >= 3
        assert scrape.value("rmqha_flush_latency_seconds_sum") > 0 and scrape.value("rmqha_flush_behind_bytes") == 0
        assert {one.labels["fault"] for one in scrape.all("rmqha_store_fault")} == set(FAULTS)
        assert not any(one.value for one in scrape.all("rmqha_store_fault"))

        monkeypatch.setattr(broker.store.commit_log, "_append", lambda context: broker.store.commit_log._append_failed(
            OSError(errno.ENOSPC, "planted")))
        assert broker.send(TOPIC).code != response_code.SUCCESS
        scrape = Scrape(port)
        assert scrape.value("rmqha_store_fault", fault="disk_full") == 1 and scrape.value("rmqha_store_writeable") == 0
        assert scrape.value("rmqha_broker_ready") == 0
        status, body, _headers = http_get(port, "/readyz")
        assert status == 503 and b"the store accepts no messages" in body and http_get(port, "/healthz")[0] == 200


def test_recovery_is_exposed_after_a_crash_and_after_a_clean_stop(tmp_path):
    with running_broker(tmp_path) as broker:
        broker.send(TOPIC)
        abort = tmp_path / "store" / "abort"
        assert abort.exists()
    abort.touch()
    for was_clean in (0, 1):
        with running_broker(tmp_path) as broker, metrics_port(BrokerMetrics(broker.controller)) as port:
            scrape = Scrape(port)
            assert scrape.value("rmqha_recovery_was_clean") == was_clean
            assert 0 < scrape.value("rmqha_recovery_seconds", phase="load") < 60
            assert 0 < scrape.value("rmqha_recovery_seconds", phase="dispatch") < 60


def test_messages_sent_back_are_counted(tmp_path):
    with running_broker(tmp_path) as broker, metrics_port(BrokerMetrics(broker.controller)) as port:
        for _ in range(3):
            broker.controller.broker_stats_manager.inc_send_back_nums(GROUP, TOPIC)
        # A group that is not registered.
        broker.controller.broker_stats_manager.inc_send_back_nums("somebody", TOPIC)
        broker.send(TOPIC)
        broker.heartbeat(GROUP, TOPIC)
        sample(broker)
        assert [(one.labels["group"], one.value) for one in Scrape(port).all("rocketmq_send_back_nums", topic=TOPIC)] \
            == [(GROUP, 3)]


def test_stalls_are_exposed_when_they_are_watched(tmp_path):
    with running_broker(tmp_path, stallWatchMs=20) as broker, metrics_port(BrokerMetrics(broker.controller)) as port:
        before = Scrape(port).value("rmqha_stalls_total")
        pattern = re.compile(r"(a+)+$")
        wait_until(lambda: pattern.match("a" * 24 + "b") or Scrape(port).value("rmqha_stalls_total") > before)
        assert Scrape(port).value("rmqha_stalled_seconds_total") >= 0.02
    with running_broker(tmp_path / "off") as broker, metrics_port(BrokerMetrics(broker.controller)) as port:
        assert not Scrape(port).all("rmqha_stalls_total")


def test_metrics_port_is_open_from_start_to_shutdown(tmp_path):
    with running_name_server(tmp_path / "n") as namesrv:
        metrics = free_port()
        controller = new_controller(tmp_path / "b", namesrv, metricsPort=metrics)
        try:
            assert controller.initialize()
            assert http_get(metrics, "/healthz")[0] == 200
            status, body, _headers = http_get(metrics, "/readyz")
            assert status == 503 and b"the store is not open" in body
            early = Scrape(metrics)
            assert early.value("rmqha_store_open") == 0 and not early.all("rmqha_puts_total")
            controller.start()
            assert http_get(metrics, "/readyz")[0] == 200
            assert Scrape(metrics).value("rmqha_name_servers_registered") == 1
        finally:
            controller.shutdown()
        with pytest.raises(ConnectionRefusedError):
            http_get(metrics, "/healthz")


def test_not_ready_while_no_name_server_answers(tmp_path):
    with running_broker(tmp_path, f"127.0.0.1:{free_port()}", registerBrokerTimeoutMills=200) as broker, \
            metrics_port(BrokerMetrics(broker.controller)) as port:
        status, body, _headers = http_get(port, "/readyz")
        assert status == 503 and body == b"no name server has accepted its registration\n"


def test_stopped_service_is_not_healthy(tmp_path):
    with running_broker(tmp_path) as broker, metrics_port(BrokerMetrics(broker.controller)) as port:
        assert http_get(port, "/healthz")[0] == 200
        broker.store.flush_consume_queue_service.shutdown()
        status, body, _headers = http_get(port, "/healthz")
        assert status == 503 and body == b"the service FlushConsumeQueueService has ended\n"
        assert http_get(port, "/readyz")[0] == 503


@pytest.mark.parametrize("key, value, reason", [
    ("brokerPermission", 4, "brokerPermission=4 forbids sends"),
    ("startAcceptSendRequestTimeStamp", 1 << 62, "startAcceptSendRequestTimeStamp is ")])
def test_reason_for_refused_sends_is_exposed(tmp_path, key, value, reason):
    with running_broker(tmp_path, **{key: value}) as broker:
        assert reason in BrokerMetrics(broker.controller).why_not_ready()[0]
        assert not BrokerMetrics(broker.controller).why_not_healthy()


def test_metrics_port_in_use_stops_the_start(tmp_path):
    with running_broker(tmp_path / "one") as broker, metrics_port(BrokerMetrics(broker.controller)) as taken:
        controller = new_controller(tmp_path / "two", metricsPort=taken)
        try:
            with pytest.raises(OSError, match="metricsPort"):
                controller.initialize()
        finally:
            controller.shutdown()
