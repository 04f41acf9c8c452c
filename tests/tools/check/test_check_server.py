"""`rmqha check server`: one server answers, or not."""
import json

from rmqha.common.protocol import response_code
from rmqha.tools.admin.cluster_admin import ClusterAdmin, RefusedError
from tests.support import ports


def test_servers_that_answer_are_ok(cluster, run):
    for option, address in (("-n", cluster.namesrv), ("-b", cluster.master.address), ("-b", cluster.slave.address)):
        result = run("check", "server", option, address)
        assert result.exit_code == 0 and f"{address} answers | 'time'=0." in result.output
    result = run("check", "server", "-n", cluster.namesrv, "-o", "json")
    assert json.loads(result.output)["status"] == "OK"


def test_server_that_is_not_there_is_critical(run):
    for option in ("-n", "-b"):
        result = run("check", "server", option, f"127.0.0.1:{ports.free_port()}")
        assert result.exit_code == 2 and result.output.startswith("SERVER CRITICAL - the ")
        assert "can't be reached" in result.output


def test_broker_that_is_asked_as_a_name_server_is_critical(cluster, run):
    result = run("check", "server", "-n", cluster.master.address)
    assert result.exit_code == 2 and "answers with error" in result.output


def test_broker_that_refuses_the_question_does_answer(run, monkeypatch):
    def refuse(_admin, _address):
        raise RefusedError("no", response_code.NO_PERMISSION)

    monkeypatch.setattr(ClusterAdmin, "runtime_info", refuse)
    result = run("check", "server", "-b", "127.0.0.1:1")
    assert result.exit_code == 0 and "answers, and refuses the question" in result.output


def test_what_is_to_be_checked_must_be_said(run):
    for arguments in ([], ["-n", "127.0.0.1:1", "-b", "127.0.0.1:1"], ["-n", "nowhere"]):
        result = run("check", "server", *arguments)
        assert result.exit_code == 3 and result.output.startswith("SERVER UNKNOWN - ")
