"""`rmqha context`, which cluster and which account each command uses, and a cluster that only a context can reach."""
import json

import pytest
from click.testing import CliRunner

from rmqha import Message, Producer
from rmqha.client.contexts import read_contexts
from rmqha.tools import connection
from rmqha.tools.rmqha_command import rmqha
from tests.acl.support import ACCOUNTS
from tests.broker.support import acl_broker
from tests.support.in_process import running_name_server
from tests.support.programs import Authority
from tests.support.wait import wait_until

NOWHERE = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def file(tmp_path, monkeypatch):
    path = tmp_path / "contexts.json"
    monkeypatch.setenv("RMQHA_CONTEXTS_FILE", str(path))
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    return path


def run(*arguments: object, **more: object):
    return CliRunner().invoke(rmqha, [str(argument) for argument in arguments], **more)


def told(*arguments: object, **more: object) -> str:
    result = run(*arguments, **more)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def terminal(monkeypatch):
    """Make the standard input of the tests a terminal on which a secret can be typed."""
    monkeypatch.setattr(connection, "can_ask", lambda: True)


def asked_server(*arguments: object, **more: object) -> str:
    """Return the name server that a command tried to reach, which nothing listens on."""
    result = run(*arguments, **more)
    assert result.exit_code == 2 and "can't be reached" in result.output, result.output
    return result.output.partition("name server ")[2].partition(" ")[0]


@pytest.mark.usefixtures("terminal")
def test_contexts_are_added_listed_shown_used_and_removed(file):
    assert told("context", "add", "test", "-n", "127.0.0.1:9876") == "context test: 127.0.0.1:9876, current\n"
    assert told("context", "add", "prod", "-n", "a:1;b:2", "--access-key", "operator",
                input="a secret\n").endswith("context prod: a:1;b:2\n")
    assert file.stat().st_mode & 0o777 == 0o600
    assert read_contexts().get("prod").secret_key.reveal() == "a secret"
    for command in (["list"], ["list", "-o", "json"], ["show", "prod"], ["show", "prod", "-o", "yaml"]):
        assert "a secret" not in told("context", *command)
    assert [(row["name"], row["current"], row["in_use"])
            for row in json.loads(told("context", "list", "-o", "json"))] == [
        ("prod", False, False), ("test", True, True)]
    assert told("context", "use", "prod") == "current context: prod\n"
    assert json.loads(told("context", "show", "-o", "json"))["name"] == "prod"
    assert json.loads(told("--context", "test", "context", "show", "-o", "json"))["name"] == "test"
    result = run("context", "use", "test", env={"RMQHA_CONTEXT": "prod"})
    assert "RMQHA_CONTEXT=prod beats it" in result.stderr
    assert told("context", "use", "--none") == "no current context\n"
    assert told("context", "remove", "prod") == "removed context prod\n"
    assert told("context", "path") == f"{file}\n"
    assert sorted(read_contexts().contexts) == ["test"]


@pytest.mark.parametrize("arguments, problem", [
    (["add", "a b", "-n", "a:1"], "can't be the name"),
    (["add", "a", "-n", "a"], "not a valid host:port"),
    (["add", "a", "-n", "a:1", "--secret-key-env", "E"], "a secret key needs accessKey"),
    (["add", "a", "-n", "a:1", "--access-key", "ops-admin", "--secret-key-env", "E", "--secret-key-command", "c"],
     "only one"),
    (["add", "a", "-n", "a:1", "--access-key", "opsadm", "--secret-key-env", "E"], "the access key 'opsadm' is too"),
    (["use"], "give a context or --none"), (["use", "a", "--none"], "give a context or --none"),
    (["use", "a"], "no context 'a'"), (["remove", "a"], "no context 'a'"), (["show"], "no context is current")])
def test_wrong_use_is_an_error_and_changes_nothing(file, arguments, problem):
    result = run("context", *arguments)
    assert result.exit_code == 2 and problem in result.output
    assert not file.exists() or not read_contexts().contexts


@pytest.mark.usefixtures("terminal")
def test_secret_that_brokers_refuse_is_not_stored(file):
    result = run("context", "add", "a", "-n", "a:1", "--access-key", "ops-admin", input="short1\n")
    assert result.exit_code == 2 and "the secret key is too short: it needs more than 6 characters" in result.output
    assert "short1" not in result.output and not file.exists()


def test_secret_without_a_terminal_to_ask_on_is_one_line(file, monkeypatch):
    monkeypatch.setattr(connection, "can_ask", lambda: False)
    result = run("context", "add", "a", "-n", "a:1", "--access-key", "ops-admin", input="a secret\n")
    assert result.exit_code == 2 and not file.exists()
    assert result.output == ("Error: no terminal to ask for the secret key on: give --secret-key-env or "
                             "--secret-key-command\n")


def test_context_that_the_environment_beats_is_current_and_not_in_use():
    told("context", "add", "test", "-n", "a:1")
    told("context", "add", "prod", "-n", "a:2")
    note = "note: NAMESRV_ADDR is set, so the current context is not used\n"
    env = {"NAMESRV_ADDR": "b:1"}
    listed = run("context", "list", "-o", "json", env=env)
    assert [(row["name"], row["current"], row["in_use"]) for row in json.loads(listed.stdout)] == [
        ("prod", False, False), ("test", True, False)]
    table = run("context", "list", env=env)
    assert "\n*  test  a:1" in table.stdout
    for result in (listed, table, run("context", "show", env=env), run("context", "use", "test", env=env)):
        assert result.exit_code == 0 and result.stderr == note
    for words in (["--context", "prod", "context", "list"], ["context", "show", "prod"], ["context", "use", "--none"]):
        assert run(*words, env=env).stderr == ""


def test_option_beats_the_named_context_which_beats_the_environment_which_beats_the_current_one():
    for name, port in (("current", 2), ("of-env", 3), ("of-option", 4)):
        told("context", "add", name, "-n", f"127.0.0.1:{port}")
    env = {"RMQHA_CONTEXT": "of-env", "NAMESRV_ADDR": "127.0.0.1:5"}
    assert asked_server("ha", "status") == "127.0.0.1:2"
    assert asked_server("ha", "status", env={"NAMESRV_ADDR": "127.0.0.1:5"}) == "127.0.0.1:5"
    assert asked_server("ha", "status", env=env) == "127.0.0.1:3"
    assert asked_server("--context", "of-option", "ha", "status", env=env) == "127.0.0.1:4"
    assert asked_server("ha", "status", "-n", NOWHERE, env=env) == NOWHERE
    both = run("--context", "of-option", "ha", "status", "-n", NOWHERE)
    assert both.exit_code == 2 and "give --context or -n, not both" in both.output
    unknown = run("ha", "status", env={"RMQHA_CONTEXT": "of-envy"})
    assert unknown.exit_code == 2 and "no context 'of-envy'; did you mean of-env?" in unknown.output


@pytest.mark.parametrize("command", [
    ("ha", "status"), ("check", "ha"), ("top", "--once"), ("console", "--port", "0"), ("produce", "-t", "T"),
    ("consume", "-t", "T"), ("tail", "-t", "T"), ("export", "-t", "T", "f"), ("bench", "produce", "-t", "T")],
    ids=" ".join)
def test_each_command_that_works_on_a_cluster_takes_the_context(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told("context", "add", "nowhere", "-n", NOWHERE)
    if command[0] == "console":
        pytest.importorskip("uvicorn")
        monkeypatch.setattr("rmqha.tools.console.server.serve", lambda wanted, *_rest: print(wanted.namesrv))
        assert told(*command) == NOWHERE + "\n"
        return
    result = run(*command, input="")
    assert NOWHERE in result.output, result.output


def test_malformed_file_ends_a_command_with_its_path(file):
    file.write_text("{", "utf-8")
    result = run("ha", "status")
    assert result.exit_code == 2 and str(file) in result.output
    assert asked_server("ha", "status", "-n", NOWHERE) == NOWHERE  # does not read it


def test_names_of_contexts_are_completed(file):
    for name in ("prod-a", "prod-b", "test"):
        told("context", "add", name, "-n", "a:1")

    def completed(words: str, *, at: int) -> list[str]:
        found = run(env={"_RMQHA_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(at)},
                    prog_name="rmqha")
        return [line.partition(",")[2] for line in found.output.splitlines() if line]
    assert completed("rmqha context use prod", at=3) == ["prod-a", "prod-b"]
    assert completed("rmqha --context tes", at=2) == ["test"]
    file.write_text("{", "utf-8")
    assert completed("rmqha context use prod", at=3) == []


# ---- a cluster with TLS and accounts


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory, authority):
    """The address of a name server. It and its broker have a certificate, and the broker serves its accounts only."""
    pytest.importorskip("yaml")
    folder, identity = tmp_path_factory.mktemp("guarded"), authority.sign("server")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TLS_TEST_MODE_ENABLE", "false")
        patch.setenv("TLS_SERVER_CERTPATH", str(identity.certificate))
        patch.setenv("TLS_SERVER_KEYPATH", str(identity.key))
        with running_name_server(folder) as namesrv, acl_broker(folder / "home", ACCOUNTS, namesrvAddr=namesrv):
            yield namesrv


def test_context_has_the_account_and_the_trusted_authority(guarded, authority, tmp_path, monkeypatch):
    monkeypatch.setenv("ADMIN_SECRET", "adminSecret")
    add = ["context", "add", "--access-key", "adminKey", "--secret-key-env", "ADMIN_SECRET", "-n", guarded, "--tls-ca"]
    told(*add, authority.certificate, "guarded")
    wait_until(lambda: "broker-a" in run("ha", "status").output, 60_000, "the broker is registered")
    assert "broker-a" in told("top", "--once")
    with Producer.from_context("makers") as producer:
        assert producer.send(Message("orders", b"17 apples")).msg_id
    assert "17 apples" in told("consume", "-t", "orders", "--count", "1")
    told("context", "add", "anonymous", "-n", guarded, "--tls-ca", authority.certificate)
    refused = run("--context", "anonymous", "ha", "status")
    assert refused.exit_code == 2 and "no permission" in refused.output
    assert "a current context is not used" not in refused.output
    told(*add, Authority(tmp_path, "stranger").certificate, "deceived")
    assert run("--context", "deceived", "ha", "status").exit_code == 2
