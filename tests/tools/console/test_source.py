"""The cache of the console: answers that are there before somebody views them, and that show a change at once."""
import pytest
from starlette.testclient import TestClient

from rmqha.acl.common import AclClientRPCHook, SessionCredentials
from rmqha.common.topics import TopicConfig
from rmqha.tools.admin.cluster_admin import ClusterAdmin
from rmqha.tools.connection import Account
from rmqha.tools.console import source as source_module
from rmqha.tools.console.access import Access, Role
from rmqha.tools.console.app import create_app
from rmqha.tools.console.source import Source, Wanted
from rmqha.tools.view import questions as questions_module
from rmqha.tools.view.group_poll import Groups
from rmqha.tools.view.questions import QuestionError
from tests.broker.support import ADMIN, acl_broker
from tests.support.in_process import running_name_server
from tests.support.wait import wait_until

pytest.importorskip("starlette", reason="the extra `console` is not installed")

TOKEN = "token-for-tests-only"
WRITE = {"X-Rmqha-Console": "1", "Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def source(orders):
    with Source(Wanted(orders.namesrv, interval_s=1.0, timeout_s=6.0)) as opened:
        yield opened


@pytest.fixture(scope="module")
def client(source):
    return TestClient(create_app(source, Access(TOKEN, False, Role.ADMINISTER)), "http://127.0.0.1:8088")


def test_account_that_all_brokers_have_is_a_conflict(tmp_path):
    pytest.importorskip("yaml")
    hook = AclClientRPCHook(SessionCredentials(*ADMIN))
    with (running_name_server(tmp_path) as namesrv, acl_broker(tmp_path / "home", namesrvAddr=namesrv),
          Source(Wanted(namesrv, interval_s=1.0, timeout_s=6.0, account=Account(hook))) as opened):
        client = TestClient(create_app(opened, Access(TOKEN, False, Role.ADMINISTER)), "http://127.0.0.1:8088")
        account = {"access_key": "newcomer", "secret_key": "newSecret"}
        wait_until(lambda: client.get("/api/accounts").status_code == 200, what="the accounts")
        post(client, "/api/accounts", **account)
        again = client.post("/api/accounts", headers=WRITE, json={**account, "secret_key": "otherSecret"})
        assert again.status_code == 409
        assert again.json()["error"] == (
            "the account newcomer exists already: change it with `rmqha acl user alter`")


def topics_of(client) -> set[str]:
    answer = client.get("/api/topics")
    assert answer.status_code == 200, answer.text
    return {row["name"] for row in answer.json()["topics"]}


def post(client, path: str, **body: object) -> None:
    answer = client.post(path, headers=WRITE, json=body)
    assert answer.status_code == 200, answer.text


def test_topics_and_dead_letters_are_asked_for_before_somebody_views_them(orders):
    with Source(Wanted(orders.namesrv, interval_s=1.0, timeout_s=6.0)) as opened:
        for question in (("topics", orders.cluster.master.address), "dead letters"):
            wait_until(lambda question=question: opened.questions.answers.has(question), what=str(question))


def test_change_is_shown_at_once_although_older_answers_would_do(client, monkeypatch):
    monkeypatch.setattr(questions_module, "TOPICS_TTL_S", 600.0)
    before = topics_of(client)
    post(client, "/api/topics", topic="made-here", queues=1, perm="rw")
    assert topics_of(client) == before | {"made-here"}
    post(client, "/api/topics/made-here/alter", read_queues=3, write_queues=2)
    (row,) = client.get("/api/topics/made-here/settings").json()["config"]
    assert (row["read_queues"], row["write_queues"]) == (3, 2)
    post(client, "/api/topics/made-here/delete")
    assert topics_of(client) == before


def test_change_of_somebody_else_is_shown_after_a_moment(client, source, orders, monkeypatch):
    monkeypatch.setattr(questions_module, "TOPICS_TTL_S", 0.0)
    source.questions.answers.forget()
    before = topics_of(client)
    orders.admin.create_and_update_topic_config(orders.cluster.master.address, TopicConfig("made-elsewhere", 1, 1))
    wait_until(lambda: topics_of(client) == before | {"made-elsewhere"}, what="the new topic")


def test_error_of_a_broker_is_shown_when_its_topics_are_too_old(client, source, monkeypatch):
    known = topics_of(client)

    def refuse(*_arguments):
        raise ValueError("odd")
    monkeypatch.setattr(source.questions._tables, "ask", refuse)
    monkeypatch.setattr(questions_module, "TOPICS_STALE_S", 0.0)
    assert topics_of(client) == known
    source.questions.answers.forget()
    answer = client.get("/api/topics")
    assert (answer.status_code, answer.json()["error"]) == (502, "malformed answer: odd")
    assert client.get("/api/topics/Orders/settings").status_code == 502


def test_groups_are_waited_for_until_they_are_known(orders, monkeypatch):
    monkeypatch.setattr(source_module, "_FIRST_PICTURE_S", 0.1)
    with Source(Wanted(orders.namesrv, interval_s=1.0, timeout_s=6.0)) as opened:
        real = opened._collector.group_poll.poll
        with monkeypatch.context() as patched:
            patched.setattr(opened._collector.group_poll, "poll", lambda *_arguments: Groups())
            wait_until(lambda: opened.poller.latest is not None, what="a picture")
            with pytest.raises(QuestionError, match="the groups are not known yet"):
                opened.picture_with_groups()
            client = TestClient(create_app(opened, Access(TOKEN, False, Role.SEE)), "http://127.0.0.1:8088")
            assert client.get("/api/groups").status_code == 400
            assert client.get("/api/cluster").status_code == 200
        assert opened._collector.group_poll.poll == real
        wait_until(lambda: client.get("/api/groups").status_code == 200, what="the groups")


def test_requests_for_tables_do_not_share_the_connections_of_others(source):
    assert isinstance(source.questions._tables._admin, ClusterAdmin)
    assert source.questions._tables._admin not in (source.admin, source.questions.admin)
