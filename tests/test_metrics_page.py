"""docs/metrics.md lists every metric with the exporter's and 5.x's; `python -m tests.test_metrics_page` writes it."""
import sys

from rmqha.broker.metrics.broker_metrics import EXPORTER_METRICS, OTEL_METRICS, OWN_METRICS
from rmqha.broker.metrics.runtime_metrics import RUNTIME_METRICS
from rmqha.common.metrics import OF_EACH_ANSWER, Metric
from rmqha.controller.controller_metrics import CONTROLLER_METRICS
from rmqha.namesrv.namesrv_controller import NAMESRV_METRICS
from tests.support.sources import ROOT

PAGE = ROOT / "docs" / "metrics.md"
BEGIN, END = "<!-- tables: python -m tests.test_metrics_page -->\n", "<!-- end -->\n"
_RUNTIME = "rocketmq_brokeruntime_"
_OF_TOPIC, _OF_GROUP = "cluster broker topic", "cluster broker topic group"
_DIFF, _CLIENT = "group topic countOfOnlineConsumers msgModel", "clientAddr clientId group topic"
# All metrics that RMQMetricsCollector of apache/rocketmq-exporter (e1ab2dd) makes: labels -> names, in its order.
EXPORTER = {
    _DIFF: "group_diff group_retrydiff group_dlqdiff",
    "caddr localaddr group": "group_count",
    "cluster broker group": "producer_count topic_dlq_offset",
    _OF_TOPIC: "producer_offset topic_retry_offset producer_tps producer_message_size",
    _OF_GROUP: "consumer_tps group_consume_tps consumer_offset group_consume_total_offset consumer_message_size "
               "send_back_nums group_get_latency_by_storetime",
    _CLIENT: "client_consume_fail_msg_count client_consume_fail_msg_tps client_consume_ok_msg_tps client_consume_rt "
             "client_consumer_pull_rt client_consumer_pull_tps",
    "cluster brokerIP broker": "broker_tps broker_qps broker_commitlog_diff",
}
_RUNTIME_NAMES = """
pmdt_0ms pmdt_0to10ms pmdt_10to50ms pmdt_50to100ms pmdt_100to200ms pmdt_200to500ms pmdt_500to1s pmdt_1to2s pmdt_2to3s
pmdt_3to4s pmdt_4to5s pmdt_5to10s pmdt_10stomore msg_put_total_today_now msg_gettotal_today_now dispatch_behind_bytes
put_message_size_total put_message_average_size query_threadpool_queue_capacity remain_transientstore_buffer_numbs
earliest_message_timestamp putmessage_entire_time_max start_accept_sendrequest_time send_threadpool_queue_size
putmessage_times_total getmessage_entire_time_max pagecache_lock_time_mills commitlog_disk_ratio
consumequeue_disk_ratio getfound_tps600 getfound_tps60 getfound_tps10 gettotal_tps600 gettotal_tps60 gettotal_tps10
gettransfered_tps600 gettransfered_tps60 gettransfered_tps10 getmiss_tps600 getmiss_tps60 getmiss_tps10 put_tps600
put_tps60 put_tps10 dispatch_maxbuffer pull_threadpoolqueue_capacity send_threadpoolqueue_capacity
pull_threadpoolqueue_size query_threadpoolqueue_size pull_threadpoolqueue_headwait_timemills
query_threadpoolqueue_headwait_timemills send_threadpoolqueue_headwait_timemills msg_gettotal_yesterdaymorning
msg_puttotal_yesterdaymorning msg_gettotal_todaymorning msg_puttotal_todaymorning commitlogdir_capacity_free
commitlogdir_capacity_total commitlog_maxoffset commitlog_minoffset remain_howmanydata_toflush put_latency_99
put_latency_999"""
EXPORTER_RUNTIME = _RUNTIME_NAMES.split()
_OF_CONSUMER = ("missing: only the consumer knows it. The exporter lets the broker ask each consumer; a scrape can't "
                "wait for that")
_NEVER = "missing: the exporter defines the name and never gives it a value"
LEFT_OUT = {
    "rocketmq_group_dlqdiff": _NEVER + " (it skips dead-letter topics)",
    "rocketmq_group_consume_tps": _NEVER + "; the rate is rocketmq_consumer_tps",
    "rocketmq_group_consume_total_offset": _NEVER + "; the offset is rocketmq_consumer_offset",
    **{f"rocketmq_{name}": _OF_CONSUMER for name in EXPORTER[_CLIENT].split()},
}
# Metrics of 5.1.4 (its classes *MetricsConstant) that rmqha lacks.
OTEL_LEFT_OUT = {
    "rocketmq_message_size": "missing: it would need the size of each message when it is sent",
    "rocketmq_rpc_latency": "missing: it would need the time of each request. rmqha_ack_latency_seconds has the sends",
    "rocketmq_consumer_inflight_messages, rocketmq_consumer_queueing_latency, rocketmq_consumer_ready_messages":
        "missing: they need the offsets of pulls, which brokers of 4.9 do not keep",
    "rocketmq_send_to_dlq_messages_total": "missing: the original topic of a dead letter is not kept. "
                                           "rocketmq_topic_dlq_offset has the number by group",
    "rocketmq_timer_*, rocketmq_timing_messages": "missing: 4.9 has no timer wheel. rmqha_delayed_messages has the "
                                                  "delay levels",
    "rocketmq_pop_*": "missing: 4.9 has no pop consumers",
    "rocketmq_proxy_up, rocketmq_tiered_store_*": "missing: 4.9 has none of them",
}
HERE = {metric.name: metric for metric in (*EXPORTER_METRICS, *RUNTIME_METRICS)}


def exporter_names() -> dict[str, str]:
    """Return the exporter's names, with their labels."""
    names = {f"rocketmq_{name}": labels for labels, group in EXPORTER.items() for name in group.split()}
    return names | {_RUNTIME + name: "cluster brokerIP brokerHost des boottime broker_version"
                    for name in EXPORTER_RUNTIME}


def _own(metrics: tuple[Metric, ...], common: tuple[str, ...] = ()) -> list[str]:
    rows = [f"| name | type | {'more ' if common else ''}labels | meaning |", "|---|---|---|---|"]
    if common:
        rows = [f"All have the labels {', '.join(common)}.", "", *rows]
    assert all(one.labels[:len(common)] == common for one in metrics)
    return rows + [f"| `{one.name}` | {one.kind} | {', '.join(one.labels[len(common):])} | {one.meaning} |"
                   for one in metrics]


def tables() -> str:
    """Return all tables."""
    text = ["### Metrics of a broker", "", *_own(OWN_METRICS, ("cluster", "broker", "broker_id")), "",
            "### Metrics of a name server", "", *_own(NAMESRV_METRICS), "",
            "### Metrics of a controller", "", *_own(CONTROLLER_METRICS), "",
            "### Metrics of every answer", "", *_own(OF_EACH_ANSWER), "",
            "## The exporter's names", "",
            f"The exporter defines {len(exporter_names())} names. rmqha has {len(HERE)} of them, with the same labels.",
            "", "| name | labels | meaning |", "|---|---|---|"]
    for name, labels in exporter_names().items():
        if not name.startswith(_RUNTIME):
            text.append(f"| `{name}` | {labels.replace(' ', ', ')} | {LEFT_OUT.get(name) or HERE[name].meaning} |")
    text += ["", "The following names begin with `rocketmq_brokeruntime_`. All have the labels cluster, brokerIP, "
             "brokerHost, des,\nboottime and broker_version. brokerHost is empty, as in the exporter.", "",
             "| name | meaning |", "|---|---|"]
    text += [f"| `..._{name}` | {HERE[_RUNTIME + name].meaning} |" for name in EXPORTER_RUNTIME]
    text += ["", "## 5.x's names", "", "These names are those of 5.1.4. They need `metricsNames=otel` or `both`.", "",
             *_own(OTEL_METRICS, ("cluster", "node_type", "node_id"))]
    text += [f"| {', '.join(f'`{name}`' for name in names.split(', '))} | | | {reason} |"
             for names, reason in OTEL_LEFT_OUT.items()]
    return "\n".join(text) + "\n"


def rewritten() -> str:
    """Return the page with its tables generated from the code."""
    text = PAGE.read_text("utf-8")
    before, after = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:before] + "\n" + tables() + text[after:]


def test_every_name_of_the_exporter_is_exported_or_omitted_for_a_reason():
    names = exporter_names()
    assert len(names) == 89
    assert {name for name in names if name not in HERE} == set(LEFT_OUT)
    assert set(HERE) <= set(names), "rmqha must not add names under the exporter's prefix"
    assert {name: " ".join(metric.labels) for name, metric in HERE.items()} == {
        name: labels for name, labels in names.items() if name in HERE}


def test_no_name_has_two_meanings():
    metrics = (*OWN_METRICS, *NAMESRV_METRICS, *CONTROLLER_METRICS, *OF_EACH_ANSWER, *EXPORTER_METRICS,
               *RUNTIME_METRICS, *OTEL_METRICS)
    assert len({metric.name for metric in metrics}) == len(metrics)
    for metric in metrics:
        assert metric.meaning and "|" not in metric.meaning and len(set(metric.labels)) == len(metric.labels)
        if metric.name.startswith("rmqha_"):
            assert (metric.kind == "counter") == metric.name.endswith("_total")


def test_page_has_every_metric():
    assert PAGE.read_text("utf-8") == rewritten(), "run: python -m tests.test_metrics_page"


if __name__ == "__main__":
    PAGE.write_text(rewritten(), "utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
