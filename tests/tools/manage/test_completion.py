"""Completion of names from the cluster: what a shell gets, and that it never gets an error or waits long."""
from contextlib import nullcontext

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.tools.manage import completion
from rmqha.tools.rmqha_command import rmqha
from tests.support.raw_remoting import RawClient
from tests.support.tiers import drawn
from tests.tools.manage.two_masters import FakeServer, two_masters, unreachable_master


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A cluster with topics and groups."""
    with two_masters(tmp_path_factory.mktemp("completion")) as masters:
        for name in ("orders", "orders-eu", "stock"):
            masters.ok("topic", "create", name, "-q", 1)
        for broker, group in (("broker-a", "billing"), ("broker-b", "bookkeeping")):
            masters.brokers[broker].controller.subscription_group_manager.find_subscription_group_config(group)
        with RawClient(masters.brokers["broker-a"].address) as client:
            for topic in ("%RETRY%billing", "%DLQ%billing"):
                client.create_topic(topic, 1)
        yield masters


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Let a busy machine answer in time."""
    monkeypatch.setattr(completion, "TIMEOUT_S", 60.0)
    monkeypatch.setattr(completion, "LIMIT_S", 120.0)


def completed(words: str, env: dict[str, str] | None = None) -> list[str]:
    """Return what bash gets for the last word of a line; the line ends where it is completed."""
    typed = words.split(" ")
    result = CliRunner().invoke(rmqha, prog_name="rmqha", env={
        "NAMESRV_ADDR": "", "_RMQHA_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(typed) - 1),
        **(env or {})})
    assert result.stderr == ""
    return [line.partition(",")[2] for line in result.stdout.splitlines() if line]


def test_topics_come_from_the_name_server_of_the_line(cluster):
    assert completed(f"rmqha topic describe -n {cluster.namesrv} ord") == ["orders", "orders-eu"]
    assert completed("rmqha topic alter st", {"NAMESRV_ADDR": cluster.namesrv}) == ["stock"]
    assert {"orders", "stock"} < set(completed(f"rmqha dlq resend billing -n {cluster.namesrv} --to "))


def test_retry_and_dead_letter_topics_need_a_percent_sign(cluster):
    assert completed(f"rmqha topic describe -n {cluster.namesrv} %") == ["%DLQ%billing", "%RETRY%billing"]
    assert not any(name.startswith("%") for name in completed(f"rmqha topic delete -n {cluster.namesrv} "))


def test_groups_with_dead_letters(cluster):
    assert completed(f"rmqha dlq show -n {cluster.namesrv} b") == ["billing"]


def test_names_come_from_the_context_of_the_line(cluster, tmp_path):
    env = {"RMQHA_CONTEXTS_FILE": str(tmp_path / "contexts.json")}
    made = CliRunner().invoke(rmqha, ["context", "add", "here", "-n", cluster.namesrv], env=env)
    assert made.exit_code == 0, made.output
    assert completed("rmqha topic describe ord", env) == ["orders", "orders-eu"]
    assert completed("rmqha --context here topic describe stoc", {**env, "NAMESRV_ADDR": "127.0.0.1:1"}) == ["stock"]


class Context:
    """The part of a click.Context that a callback needs."""

    def __init__(self, namesrv):
        self.params = {"namesrv": namesrv}

    def scope(self, cleanup):
        assert not cleanup
        return nullcontext()




def names(complete, namesrv, incomplete=""):
    return [item.value for item in complete(Context(namesrv), None, incomplete)]


def test_groups_clusters_and_brokers(cluster):
    assert names(completion.complete_group, cluster.namesrv) == ["billing", "bookkeeping"]
    assert names(completion.complete_cluster, cluster.namesrv) == ["C"]
    assert names(completion.complete_broker, cluster.namesrv) == ["broker-a", "broker-b"]
    addresses = sorted(broker.address for broker in cluster.brokers.values())
    assert names(completion.complete_broker, cluster.namesrv, "127") == addresses


def test_group_of_a_master_that_answers_is_completed_while_another_is_away(cluster):
    with unreachable_master(cluster.namesrv):
        assert names(completion.complete_group, cluster.namesrv, "bill") == ["billing"]


@pytest.mark.parametrize("where", ["", "-n 127.0.0.1:1 ", "-n nowhere ", "--timeout x "])
def test_no_server_means_no_names_and_no_error(where):
    assert completed(f"rmqha topic describe {where}ord") == []


def test_server_that_never_answers_is_given_up(monkeypatch):
    monkeypatch.setattr(completion, "TIMEOUT_S", 0.1)
    with FakeServer(dict.fromkeys(range(1000), lambda _request: None)) as server:
        assert completed(f"rmqha topic describe -n {server.address} ord") == []


def test_slow_secret_of_a_context_is_given_up(monkeypatch, tmp_path):
    monkeypatch.setattr(completion, "LIMIT_S", 0.1)
    env = {"RMQHA_CONTEXTS_FILE": str(tmp_path / "contexts.json")}
    assert CliRunner().invoke(rmqha, ["context", "add", "slow", "-n", "127.0.0.1:1", "--access-key", "ops-admin",
                                      "--secret-key-command", "sleep 1"], env=env).exit_code == 0
    assert completed("rmqha topic describe ord", env) == []


@settings(max_examples=drawn(60), deadline=None)
@given(st.binary(max_size=200))
def test_malformed_lists_of_a_server_are_no_names(body):
    for complete in (completion.complete_topic, completion.complete_group, completion.complete_broker):
        with FakeServer({206: body, 106: body, 201: body}) as server:
            assert all(isinstance(name, str) for name in names(complete, server.address))


@pytest.mark.parametrize("count", [0, 1, 999, 1000, 1001, 100_000])
def test_most_names_keep_the_common_beginning(count):
    found = [f"topic-{number:06}" for number in range(count)]
    kept = completion._fewer(found)
    assert len(kept) == min(count, completion.MOST_NAMES) == len(set(kept)) and kept == sorted(kept)
    assert kept[:1] + kept[-1:] == found[:1] + found[-1:]
