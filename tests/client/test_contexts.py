"""Contexts: the file, what may be in it, where secrets come from, and clients that are made from one."""
import json
import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha import Producer, PullConsumer, PushConsumer, TransactionProducer
from rmqha.aio import AsyncConsumer, AsyncProducer
from rmqha.client import contexts
from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.contexts import (
    Context,
    ContextError,
    Contexts,
    changing_contexts,
    load_context,
    read_contexts,
    write_contexts,
)
from rmqha.common.texts import Secret

PROD = Context("10.0.0.8:9876;10.0.0.9:9876", "ops", Secret("a secret"), namespace="NS", tls=True, tls_ca="/ca.pem",
               tls_cert="/cert.pem", tls_key="/key.pem")
TEST = Context("127.0.0.1:9876")


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "rmqha" / "contexts.json"
    monkeypatch.setenv("RMQHA_CONTEXTS_FILE", str(path))
    monkeypatch.delenv("RMQHA_CONTEXT", raising=False)
    return path


def test_contexts_are_read_as_they_were_written_and_only_by_their_user(file):
    assert read_contexts() == Contexts()
    written = Contexts().with_context("test", TEST).with_context("prod", PROD)
    with changing_contexts():
        write_contexts(written)
    assert read_contexts() == written
    assert written.current == "test"
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o077 == 0
    assert os.listdir(file.parent) == ["contexts.json"]


def test_default_file_is_in_the_users_config_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("RMQHA_CONTEXTS_FILE")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert contexts.contexts_file() == str(tmp_path / "rmqha" / "contexts.json")


def test_file_with_secrets_that_others_may_read_is_refused(file):
    write_contexts(Contexts().with_context("prod", PROD))
    for mode in (0o640, 0o604, 0o620, 0o666):
        file.chmod(mode)
        with pytest.raises(ContextError, match=rf"has mode {mode:o}.*chmod 600"):
            read_contexts()
    write_contexts(Contexts().with_context("test", TEST))
    file.chmod(0o644)  # nothing in it is secret
    assert read_contexts().get("test") == TEST


def test_one_in_use_is_the_named_one_then_that_of_the_environment_then_the_current_one(file, monkeypatch):
    with pytest.raises(ContextError, match="no context is current.*rmqha context add"):
        load_context()
    write_contexts(Contexts().with_context("test", TEST).with_context("prod", PROD).with_context(
        "other", Context("other:9876")))
    assert load_context() == TEST
    monkeypatch.setenv("RMQHA_CONTEXT", "prod")
    assert load_context() == PROD
    assert load_context("other") == Context("other:9876")
    with pytest.raises(ContextError, match="no context 'prodd'; did you mean prod"):
        load_context("prodd")


def test_removed_context_is_not_current_any_more():
    both = Contexts().with_context("test", TEST).with_context("prod", PROD).using("prod")
    assert both.without("prod") == Contexts({"test": TEST}, None)
    assert both.without("test") == Contexts({"prod": PROD}, "prod")
    with pytest.raises(ContextError, match="there are prod, test"):
        both.without("elsewhere")


@pytest.mark.parametrize("entry, problem", [
    ({}, "namesrv is missing"),
    ({"namesrv": "a:1", "secretKey": "s"}, "a secret key needs accessKey"),
    ({"namesrv": "a:1", "accessKey": "ops"}, "accessKey needs secretKey, secretKeyEnv or secretKeyCommand"),
    ({"namesrv": "a:1", "accessKey": "ops", "secretKey": "s", "secretKeyEnv": "E"}, "only one of secretKey"),
    ({"namesrv": "a:1", "securityToken": "t"}, "securityToken needs accessKey"),
    ({"namesrv": "a:1", "tlsCa": "/ca.pem"}, "need tls: true"),
    ({"namesrv": "a:1", "tls": True, "tlsKey": "/key.pem"}, "tlsKey needs tlsCert"),
    ({"namesrv": "a:1", "tls": "yes"}, "tls must be true or false"),
    ({"namesrv": 9876}, "namesrv must be a text"),
    ({"namesrv": "a:1", "secretkey": "s"}, "unknown key 'secretkey'; did you mean secretKey"),
    ("a:1", "not an object")])
def test_wrong_entry_is_refused_with_its_file_and_name(file, entry, problem):
    file.parent.mkdir()
    file.write_text(json.dumps({"contexts": {"prod": entry}}), encoding="utf-8")
    file.chmod(0o600)
    with pytest.raises(ContextError, match=f"^{file}: context prod: .*{problem}"):
        read_contexts()


@pytest.mark.parametrize("text, problem", [
    ("{", "contexts.json"), ("[]", "must be"), ('{"contexts": []}', "must be"), ('{"current": 1}', "must be"),
    ('{"current": "gone"}', "the current context 'gone' does not exist"), ("[" * 100_000, "contexts.json"),
    (" " * (contexts.MAX_FILE_BYTES + 1), "more than 1048576 bytes")])
def test_malformed_file_is_refused(file, text, problem):
    file.parent.mkdir()
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ContextError, match=problem):
        read_contexts()


def test_pipe_instead_of_the_file_is_refused_without_waiting(file):
    file.parent.mkdir()
    os.mkfifo(file)
    with pytest.raises(ContextError, match="named pipe"):
        read_contexts()


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(
    inner, max_size=3) | st.dictionaries(st.sampled_from(["namesrv", "accessKey", "secretKey", "tls", "x"]), inner,
                                         max_size=4), max_leaves=8)


@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(
    {"current": None, "contexts": {"a": value}}).encode()))
def test_any_file_is_read_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("contexts") / "contexts.json"
    path.write_bytes(data)
    path.chmod(0o600)
    try:
        found = read_contexts(str(path))
    except ContextError as error:
        assert str(path) in str(error)
    else:
        assert all(context.namesrv for context in found.contexts.values())


@pytest.mark.parametrize("name", ["", "-a", "a b", "a/b", "a" * 65, "ä", "a\n"])
def test_name_that_a_shell_or_a_list_would_garble_is_refused(name):
    with pytest.raises(ContextError, match="can't be the name of a context"):
        Contexts().with_context(name, TEST)


# ---- secrets


def signed_key(context: Context) -> str:
    hook = context.rpc_hook()
    assert hook is not None
    return hook.session_credentials.secret_key


def test_secret_comes_from_the_file_the_environment_or_a_command(monkeypatch):
    assert signed_key(PROD) == "a secret"
    monkeypatch.setenv("PROD_KEY", "of the environment")
    assert signed_key(Context("a:1", "ops", secret_key_env="PROD_KEY")) == "of the environment"
    printing = f"{sys.executable} -c 'print(\"of a command\")'"
    assert signed_key(Context("a:1", "ops", secret_key_command=printing)) == "of a command"
    assert TEST.rpc_hook() is None
    assert "secret" not in repr(PROD).replace("secret_key", "")


def python(code: str) -> str:
    return f"{sys.executable} -c '{code}'"


@pytest.mark.parametrize("command, problem", [
    ("", "secretKeyCommand is empty"),
    ("'", "No closing quotation"),
    ("/nonexistent/pass show", "/nonexistent/pass: No such file"),
    (python('import sys; sys.exit("no such entry")'), "failed with exit code 1: no such entry"),
    (python("pass"), "must print the secret key, in one line"),
    (python('print("a\\nb")'), "must print the secret key, in one line"),
    (python('print("a" * 70_000)'), "must print the secret key, in one line"),
    (python('import sys; sys.stdout.buffer.write(bytes([255]))'), "not UTF-8"),
    ("echo $(whoami); rm x", None)])
def test_command_that_gives_no_secret_is_an_error(command, problem):
    context = Context("a:1", "ops", secret_key_command=command)
    if problem is None:
        # No shell takes part.
        assert context.fetched_secret_key() == "$(whoami); rm x"
        return
    with pytest.raises(ContextError, match=problem):
        context.fetched_secret_key()


def test_command_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(contexts, "COMMAND_LIMIT_S", 0.2)
    with pytest.raises(ContextError, match="did not end within 0.2 s"):
        Context("a:1", "ops", secret_key_command="sleep 600").fetched_secret_key()


def test_variable_that_is_not_set_is_named(monkeypatch):
    monkeypatch.delenv("PROD_KEY", raising=False)
    with pytest.raises(ContextError, match="PROD_KEY.*of ops, is not set"):
        Context("a:1", "ops", secret_key_env="PROD_KEY").fetched_secret_key()


# ---- clients


@pytest.mark.parametrize("kind", [Producer, TransactionProducer, PushConsumer, PullConsumer, DefaultMQPullConsumer])
def test_each_client_is_made_from_a_context(file, kind):
    prod = Context("10.0.0.8:9876", "ops", Secret("a secret"), namespace="NS")
    write_contexts(Contexts().with_context("prod", prod).with_context("test", TEST))
    client = kind.from_context("billing")
    assert (type(client), client.namesrv_addr, client.namespace) == (kind, "10.0.0.8:9876", "NS")
    other = kind.from_context("billing", "test")
    assert (other.namesrv_addr, other.namespace) == ("127.0.0.1:9876", None)
    with pytest.raises(ContextError, match="no context 'nowhere'"):
        kind.from_context("billing", "nowhere")


def test_settings_of_the_class_can_be_added(file):
    write_contexts(Contexts().with_context("prod", PROD))
    producer = Producer.from_context("billing", send_msg_timeout=5_000)
    assert producer.send_msg_timeout == 5_000
    assert producer.use_tls and producer.tls is not None
    assert producer.tls.tls_client_auth_server and producer.tls.tls_client_trust_cert_path == "/ca.pem"
    assert not producer.tls.tls_test_mode_enable
    assert producer.tls.with_config_file() is producer.tls


@pytest.mark.parametrize("kind, attribute", [(AsyncProducer, "producer"), (AsyncConsumer, "consumer")])
def test_asyncio_clients_are_made_from_a_context(file, kind, attribute):
    write_contexts(Contexts().with_context("prod", PROD))
    client = getattr(kind.from_context("billing"), attribute)
    assert client.namesrv_addr == PROD.namesrv and client.tls is not None
