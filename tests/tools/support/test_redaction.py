"""No secret gets into a bundle, wherever it was planted; and what is no secret stays readable."""
import base64
import json
from urllib.parse import quote

import pytest
import yaml
from hypothesis import assume, example, given
from hypothesis import strategies as st

from rmqha.common.texts import HIDDEN
from rmqha.tools.support.redaction import MAX_LINE, REMOVED_KEY, Redactor, is_access_key, is_secret_key

# Marks, so that no secret is part of what surrounds it.
secrets = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF, exclude_categories=("Cc", "Cs", "Zl", "Zp")),
                  min_size=4, max_size=24).map(lambda text: f"Zq{text}9")
sentences = st.lists(secrets, min_size=1, max_size=3).map(" ".join)


def forms(secret):
    """Return the ways in which a secret might be read from a bundle."""
    return {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], quote(secret, safe=""),
            base64.b64encode(secret.encode()).decode()}


def assert_hidden(text, secret):
    assert not [form for form in forms(secret) if form in text], text


# ---- by their places


@pytest.mark.parametrize("line", [
    "2026-01-01 12:00:00 WARN t - refused secretKey={}", "aclSecret: {}", "# secretKey: {}", "secret_key = {}",
    "export ROCKETMQ_SECRET_KEY={}", "-Dtls.server.keyPassword={}", "java -Dx=1 -Dtls.client.keyPassword={}",
    "tls.server.keyPassword={}", "{{'SecurityToken': '{}'}}", "Signature={}", "password: '{}'", 'dbPassword => "{}"',
    "connect with --password {}", "mqadmin -x --secret-key {}", "Authorization: {}", "the API key: {}",
    "Cookie: session={}", "credentials=[{}]", "clientCredential={}", "passphrase for the key: {}",
    "SECRET KEY = {}", "keystore.pwd={}", "accessToken={}", "secretKeys[0]={}"])
@given(secret=sentences)
@example(secret="Zq'a b'9 \"c, d\"9")
def test_a_secret_after_a_key_is_hidden(line, secret):
    assert_hidden(Redactor().text("before\n" + line.format(secret) + "\nafter"), secret)


@given(secrets, secrets)
@example("Zq@a9", "Zq:@b9")
def test_users_of_urls_are_hidden(user, password):
    assume(not any(form in user for form in forms(password)))  # without a scheme only the password is hidden
    for url in (f"http://{user}:{password}@10.0.0.1:2379/x", f"etcd={user}:{password}@10.0.0.1:2379"):
        text = Redactor().line(f"connect to {url} failed")
        assert_hidden(text, password)
        assert "10.0.0.1:2379" in text or "secret" in f"{user}{password}".lower()


@given(sentences)
def test_secrets_in_json_lines_are_hidden_by_their_keys(secret):
    line = json.dumps({"time": "t", "level": "WARN", "message": f"refused: secretKey={secret}", "password": secret,
                       "inner": [{"apiKey": secret, "n": 5}], "topic": "orders"}, ensure_ascii=False)
    hidden = Redactor().line(line)
    assert_hidden(hidden, secret)
    assert json.loads(hidden)["topic"] == "orders" and json.loads(hidden)["inner"][0]["n"] == 5


@given(st.from_regex(r"\A[A-Za-z0-9+/_.\-]{8,60}\Z"))
def test_bearer_tokens_are_hidden(token):
    assert_hidden(Redactor().line(f"got 401 for Bearer Zq{token}9 from a server"), f"Zq{token}9")


def test_private_keys_are_removed_in_one_line_and_in_many():
    pem = "-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\nZqdef9==\n-----END RSA PRIVATE KEY-----"
    assert Redactor().text(f"a\n{pem}\nb") == f"a\n{REMOVED_KEY}\nb"
    assert_hidden(Redactor().text("key " + pem.replace("\n", "\\n")), "Zqdef9==")
    assert Redactor().text("-----BEGIN CERTIFICATE-----\nabc") == "-----BEGIN CERTIFICATE-----\nabc"
    # Without an end, a log is not lost as a whole.
    assert Redactor().text("-----BEGIN PRIVATE KEY-----\n" + "x\n" * 600).count("x") > 100


@given(secrets)
def test_bodies_and_properties_of_messages_are_hidden(secret):
    for line in (f"MessageExt [topic=T, body=[{secret}], flag=0]", f"body: {secret}", f'msg body="{secret}"',
                 f"Message(topic='T', flag=0, properties={{'KEYS': {secret!r}}}, body of 5 bytes)",
                 f"RemotingCommand [code=310, extFields={{'b': 'T', 'i': {secret!r}}}, x]",
                 f"Message Filter error, data, {{'KEYS': {secret!r}}}: TypeError()",
                 f"send trace data failed, the traceData is Pub {secret}: no answer"):
        assert_hidden(Redactor().line(line), secret)


# ---- by their values


@given(sentences, st.sampled_from(["secretKey: {}", "#  password = {}", "tls.server.keyPassword={}", '"token": "{}",']))
def test_a_secret_of_a_file_is_hidden_everywhere(secret, line):
    redactor = Redactor()
    redactor.harvest(f"accounts:\n{line.format(secret)}\nadmin: true")
    redactor.add_secret(secret)
    for text in (f"login with {secret} failed", json.dumps({"a": f"x{secret}y"}), f"/x?y={quote(secret, safe='')}",
                 base64.b64encode(secret.encode()).decode(), repr(secret)):
        assert_hidden(redactor.text(f"a\n{text}\nb"), secret)
        assert_hidden(json.dumps(redactor.value({"k": [text]})), secret)


def test_values_are_learned_with_and_without_quotes_and_comments():
    redactor = Redactor()
    redactor.harvest("secretKey: 'first one' # the old\npassword=second one\nsecretKey: third-one  # comment")
    for secret in ("first one", "second one", "third-one"):
        assert redactor.literal(f"x {secret} y") == f"x {HIDDEN} y"


def test_a_secret_that_is_part_of_another_does_not_reveal_it():
    redactor = Redactor()
    for secret in ("topsecretvalue", "topsecret", "topsecretvalue-long"):
        redactor.add_secret(secret)
    assert redactor.literal("topsecretvalue-long topsecretvalue topsecret") == "*** *** ***"


def test_short_and_common_values_do_not_hide_a_whole_log():
    redactor = Redactor()
    for secret in ("a", "abc", "true", "null", "data"):
        redactor.add_secret(secret)
    assert redactor.literal("abc true null database data") == "abc true null database ***"
    redactor.add_access_key("RocketMQ")
    assert redactor.line("RocketMQ 4.9.7 starts") == "RocketMQ 4.9.7 starts"


def test_accounts_get_names_that_stay_the_same():
    redactor = Redactor()
    assert redactor.add_access_key("producer-one") == "<accessKey-1>"
    assert redactor.add_access_key("consumer-one") == "<accessKey-2>"
    assert redactor.line("Check signature failed for accessKey=producer-one") == (
        "Check signature failed for accessKey=<accessKey-1>")
    assert redactor.value({"accessKey": "consumer-one", "admin": True}) == {"accessKey": "<accessKey-2>", "admin": True}
    assert redactor.line("accessKey=producer-one, secretKey=Zq1") == "accessKey=<accessKey-1>, secretKey=***"
    assert redactor.line("No acl config for unknown-one, accessKey=other") == (
        "No acl config for unknown-one, accessKey=***")


# ---- what stays


@pytest.mark.parametrize("line", [
    "2026-01-01 12:00:00 WARN t - physic disk maybe full soon 0.91, so mark disk full", "No accessKey is configured",
    "CODE: 1  DESC: No default permission for T", "", "{", '{"a": 1}', "tokens are not shown here", "secretKey=",
    "slave[10.0.0.1:50123] request offset=5 after offset=7", "client id 10.0.0.1@4711 of channel[x]",
    "http://10.0.0.1:5557/metrics", "bodyCRC=123456, properties length too long", "a@b.c"])
def test_lines_without_secrets_stay(line):
    redactor = Redactor()
    assert redactor.line(line) == line and redactor.hidden == 0


def test_numbers_booleans_and_names_stay_in_json():
    value = {"a": 1, "b": [True, None, 0.5, "x"], "tokenCount": None, "secret": "", "password": True}
    assert Redactor().value(value) == value
    assert Redactor().value({"password": 12345678, "token": {"a": "x", "b": [7]}}) == {
        "password": HIDDEN, "token": {"a": HIDDEN, "b": [HIDDEN]}}


def test_keys_are_judged_by_their_names():
    for key in ("secretKey", "etcdPassword", "tls.server.keyPassword", "ACCESS_KEY", "securityToken", "RMQ_PASSWD",
    "api.key"):
        assert is_secret_key(key)
    for key in ("PWD", "OLDPWD", "tls.server.keyPath", "brokerName", "maxMessageSize", "keys"):
        assert not is_secret_key(key)
    assert is_access_key("accessKey") and is_access_key("RMQ_ACCESS_KEY") and not is_access_key("secretKey")


@given(st.text(max_size=200))
@example("://@")
@example("a:@")
@example("password=" * 20)
@example('{"secret": ')
def test_any_text_is_redacted_without_an_error(text):
    redactor = Redactor()
    redactor.harvest(text)
    redactor.text(text)
    redactor.value({text: [text]})


@pytest.mark.parametrize("line", [
    "-" * 500_000, "secret " * 100_000, "://" * 300_000, "properties={" * 50_000, "a:@" * 200_000, "body=" * 100_000,
    "'i': '" * 100_000, "{" * 300_000, "-----BEGIN " * 50_000], ids=range(9))
def test_long_lines_are_cut(line):
    assert len(Redactor().line(line)) <= 2 * MAX_LINE


@given(sentences)
def test_yaml_of_several_lines_is_learned_line_by_line(secret):
    redactor = Redactor()
    document = yaml.safe_dump({"accounts": [{"accessKey": "account-one", "secretKey": f"{secret}\nsecond-{secret}"}]},
                              allow_unicode=True)
    for account in yaml.safe_load(document)["accounts"]:
        redactor.add_secret(account["secretKey"])
    assert_hidden(redactor.text(document), secret)
