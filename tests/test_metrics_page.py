"""docs/metrics.md has every metric, beside the exporter's and 5.x's: `python -m tests.test_metrics_page` writes it."""
import sys

from rmqha.broker.metrics.broker_metrics import EXPORTER_METRICS, OTEL_METRICS, OWN_METRICS
from rmqha.broker.metrics.runtime_metrics import RUNTIME_METRICS
from rmqha.common.metrics import OF_EACH_ANSWER, Metric
from rmqha.controller.controller_metrics import CONTROLLER_METRICS
from rmqha.namesrv.namesrv_controller import NAMESRV_METRICS
from tests.support.sources import ROOT

PAGE = ROOT / "docs" / "metrics.md"
BEGIN, END = "<!-- made by python -m tests.test_metrics_page -->\n", "<!-- end -->\n"
_RUNTIME = "rocketmq_brokeruntime_"
_OF_TOPIC, _OF_GROUP = "cluster broker topic", "cluster broker topic group"
_DIFF, _CLIENT = "group topic countOfOnlineConsumers msgModel", "clientAddr clientId group topic"
# All that RMQMetricsCollector of apache/rocketmq-exporter (e1ab2dd) makes: labels -> names, in its order.
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
_OF_CONSUMER = ("missing: only the consumer knows; the exporter has the broker ask each one, and a scrape can't wait "
                "for them")
_NEVER = "missing: the exporter has the name, and no line of it ever gives it a value"
LEFT_OUT = {
    "rocketmq_group_dlqdiff": _NEVER + " (dead-letter topics are passed over)",
    "rocketmq_group_consume_tps": _NEVER + "; the rate is rocketmq_consumer_tps",
    "rocketmq_group_consume_total_offset": _NEVER + "; the offset is rocketmq_consumer_offset",
    **{f"rocketmq_{name}": _OF_CONSUMER for name in EXPORTER[_CLIENT].split()},
}
# What 5.1.4 has (its classes *MetricsConstant), and is not told here.
OTEL_LEFT_OUT = {
    "rocketmq_message_size": "missing: the size of each message would have to be looked at when it is sent",
    "rocketmq_rpc_latency": "missing: each request would have to be timed; rmqha_ack_latency_seconds has the sends",
    "rocketmq_consumer_inflight_messages, rocketmq_consumer_queueing_latency, rocketmq_consumer_ready_messages":
        "missing: they need the offsets of pulls, which 4.9's brokers do not keep",
    "rocketmq_send_to_dlq_messages_total": "missing: the topic that a dead letter came from is not kept; "
                                           "rocketmq_topic_dlq_offset has the number by group",
    "rocketmq_timer_*, rocketmq_timing_messages": "missing: 4.9 has no timer wheel; rmqha_delayed_messages has the "
                                                  "delay levels",
    "rocketmq_pop_*": "missing: 4.9 has no pop consumers",
    "rocketmq_proxy_up, rocketmq_tiered_store_*": "missing: 4.9 has none of them",
}
HERE = {metric.name: metric for metric in (*EXPORTER_METRICS, *RUNTIME_METRICS)}


def exporter_names() -> dict[str, str]:
    """Its names, with their labels."""
    names = {f"rocketmq_{name}": labels for labels, group in EXPORTER.items() for name in group.split()}
    return names | {_RUNTIME + name: "cluster brokerIP brokerHost des boottime broker_version"
                    for name in EXPORTER_RUNTIME}


def _own(metrics: tuple[Metric, ...]) -> list[str]:
    rows = ["| name | type | labels | meaning |", "|---|---|---|---|"]
    return rows + [f"| {one.name} | {one.kind} | {', '.join(one.labels)} | {one.meaning} |" for one in metrics]


def tables() -> str:
    """All of them."""
    text = ["### A broker's", *_own(OWN_METRICS), "", "### A name server's", *_own(NAMESRV_METRICS), "",
            "### A controller's", *_own(CONTROLLER_METRICS), "",
            "### Of each answer", *_own(OF_EACH_ANSWER), "",
            "## The exporter's names, side by side",
            f"{len(exporter_names())} names, of which {len(HERE)} are told with the same labels.", "",
            "| the exporter's | labels | here |", "|---|---|---|"]
    for name, labels in exporter_names().items():
        if not name.startswith(_RUNTIME):
            text.append(f"| {name} | {labels.replace(' ', ', ')} | {LEFT_OUT.get(name) or HERE[name].meaning} |")
    text += ["", "`rocketmq_brokeruntime_...`, all with the labels cluster, brokerIP, brokerHost (empty, as the "
             "exporter leaves it), des, boottime, broker_version:", "", "| the exporter's | here |", "|---|---|"]
    text += [f"| ..._{name} | {HERE[_RUNTIME + name].meaning} |" for name in EXPORTER_RUNTIME]
    text += ["", "## 5.x's names (`metricsNames=otel` or `both`)", "", "| 5.1.4's | type | labels | here |",
             "|---|---|---|---|"]
    text += [f"| {one.name} | {one.kind} | {', '.join(one.labels)} | {one.meaning} |" for one in OTEL_METRICS]
    text += [f"| {names} | | | {reason} |" for names, reason in OTEL_LEFT_OUT.items()]
    return "\n".join(text) + "\n"


def rewritten() -> str:
    """The page with the tables as they are now."""
    text = PAGE.read_text("utf-8")
    before, after = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:before] + "\n" + tables() + text[after:]


def test_every_name_of_the_exporter_is_told_with_its_labels_or_left_out_for_a_reason():
    names = exporter_names()
    assert len(names) == 89
    assert {name for name in names if name not in HERE} == set(LEFT_OUT)
    assert set(HERE) <= set(names), "no names of ours under the exporter's prefix"
    assert {name: " ".join(metric.labels) for name, metric in HERE.items()} == {
        name: labels for name, labels in names.items() if name in HERE}


def test_no_name_means_two_things():
    metrics = (*OWN_METRICS, *NAMESRV_METRICS, *CONTROLLER_METRICS, *OF_EACH_ANSWER, *EXPORTER_METRICS,
               *RUNTIME_METRICS, *OTEL_METRICS)
    assert len({metric.name for metric in metrics}) == len(metrics)
    for metric in metrics:
        assert metric.meaning and "|" not in metric.meaning and len(set(metric.labels)) == len(metric.labels)
        if metric.name.startswith("rmqha_"):
            assert (metric.kind == "counter") == metric.name.endswith("_total")


def test_page_has_every_metric():
    assert PAGE.read_text("utf-8") == rewritten(), "python -m tests.test_metrics_page"


if __name__ == "__main__":
    PAGE.write_text(rewritten(), "utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
