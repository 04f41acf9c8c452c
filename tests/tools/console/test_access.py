"""Access rules of the console, without a server."""
import pytest

from rmqha.acl.common import AclException
from rmqha.tools.console import access as access_rules
from rmqha.tools.console.access import Access, Role, SignIn, TooManyAttemptsError, host_name, is_loopback

TOKEN = "t" * 20
WRITE = {"host": "127.0.0.1:8088", "x-rmqha-console": "1", "content-type": "application/json",
         "authorization": f"Bearer {TOKEN}"}
OPEN = Access(TOKEN, token_for_reading=False, role=Role.ADMINISTER, hosts=frozenset(("mq.example.org",)))
FAR = Access(TOKEN, token_for_reading=True)
ACCOUNTS = """\
accounts:
- accessKey: rootKey
  secretKey: rootSecret
  admin: true
- accessKey: senderKey
  secretKey: senderSecret
  defaultTopicPerm: DENY
  topicPerms:
  - orders=PUB
  - stock=SUB
- accessKey: readerKey
  secretKey: readerSecret
  defaultTopicPerm: SUB
"""


def status(access, method, path, headers):
    refusal = access.refusal(method, path, headers)
    return 200 if refusal is None else refusal.status


@pytest.mark.parametrize(("header", "name"), [
    ("localhost:8088", "localhost"), ("LOCALHOST", "localhost"), ("127.0.0.1:1", "127.0.0.1"), ("[::1]:8088", "::1"),
    ("[::1]", "::1"), ("mq.example.org.", "mq.example.org"), ("", None), ("[::1", None), ("[::1]x", None),
    ("localhost:x", None), ("a@localhost:80", "a@localhost")])
def test_name_is_read_from_a_host_header(header, name):
    assert host_name(header) == name


@pytest.mark.parametrize(("host", "wanted"), [
    ("127.0.0.1:8088", 200), ("localhost:9", 200), ("[::1]:8088", 200), ("10.1.2.3", 200), ("mq.example.org:8088", 200),
    ("evil.example.org:8088", 421), ("localhost.evil.example.org", 421), ("127.0.0.1.evil.example.org", 421),
    ("a@localhost", 421), ("", 421)])
def test_name_that_points_here_by_dns_rebinding_is_refused(host, wanted):
    assert status(OPEN, "GET", "/api/cluster", {"host": host}) == wanted


def test_reading_needs_the_token_only_where_other_hosts_have_access():
    host = {"host": "10.1.2.3:8088"}
    assert status(OPEN, "GET", "/api/cluster", host) == 200
    assert status(FAR, "GET", "/api/cluster", host) == 401
    assert status(FAR, "GET", "/api/cluster", {**host, "authorization": f"Bearer {TOKEN}"}) == 200
    for wrong in (f"Bearer {TOKEN}x", "Bearer ", f"Basic {TOKEN}", "Bearer t\u00e9"):
        assert status(FAR, "GET", "/api/cluster", {**host, "authorization": wrong}) == 401
    assert status(FAR, "GET", "/", host) == status(FAR, "GET", "/static/app.js", host) == 200
    assert status(FAR, "GET", "/api/session", host) == 200


@pytest.mark.parametrize(("change", "wanted"), [
    ({}, 200), ({"origin": "http://127.0.0.1:8088"}, 200), ({"sec-fetch-site": "same-origin"}, 200),
    ({"origin": "http://evil.example.org"}, 403), ({"origin": "null"}, 403), ({"origin": "http://127.0.0.1:9"}, 403),
    ({"sec-fetch-site": "cross-site"}, 403), ({"sec-fetch-site": "same-site"}, 403), ({"x-rmqha-console": ""}, 403),
    ({"content-type": "text/plain"}, 415), ({"content-type": "application/x-www-form-urlencoded"}, 415),
    ({"authorization": ""}, 401), ({"host": "evil.example.org"}, 421)])
def test_change_needs_headers_that_no_other_site_can_send(change, wanted):
    assert status(OPEN, "POST", "/api/topics", {**WRITE, **change}) == wanted


def test_read_only_console_changes_nothing():
    assert status(FAR, "POST", "/api/topics", WRITE) == 403
    assert status(OPEN, "POST", "/", WRITE) == 405
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE"):
        assert status(OPEN, method, "/api/topics", WRITE) == 405


@pytest.mark.parametrize(("host", "wanted"), [
    ("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
    ("10.0.0.1", False), ("example.org", False)])
def test_loopback_addresses_are_recognized(host, wanted):
    assert is_loopback(host) is wanted


# ---- roles and accounts


@pytest.mark.parametrize(("role", "wanted"), [
    (Role.SEE, (200, 403, 403)), (Role.PUBLISH, (200, 200, 403)), (Role.ADMINISTER, (200, 200, 200))])
def test_each_role_may_do_what_those_before_it_may(role, wanted):
    access = Access(TOKEN, False, role)
    asked = (("GET", "messages"), ("POST", "publish"), ("POST", "delete"))
    assert tuple(status(access, method, f"/api/topics/T/{what}", WRITE) for method, what in asked) == wanted


@pytest.mark.parametrize("role", ["see", "publish"])
def test_another_role_contradicts_the_permission_to_change_all(run, role):
    result = run("console", "-n", "127.0.0.1:1", "--role", role, "--allow-writes", "--host", "192.0.2.77")
    assert result.exit_code == 2 and f"--role {role} and --allow-writes contradict each other" in result.output


def test_the_same_role_may_be_given_twice(run):
    result = run("console", "-n", "127.0.0.1:1", "--role", "administer", "--allow-writes", "--token", "short")
    assert result.exit_code == 2 and "--token must have at least 16 characters" in result.output
    result = run("console", "-n", "127.0.0.1:1", "--allow-writes", "--host", "192.0.2.77")
    assert "contradict" not in result.output


@pytest.fixture
def file(tmp_path):
    pytest.importorskip("yaml")
    path = tmp_path / "plain_acl.yml"
    path.write_text(ACCOUNTS, "utf-8")
    return path


def signed_in(sign_in: SignIn, key: str, secret: str) -> dict[str, str]:
    opened = sign_in.open(key, secret)
    assert opened is not None
    return {**WRITE, "authorization": f"Bearer {opened[0]}"}


def test_accounts_have_the_roles_and_topics_of_their_permissions(file):
    sign_in = SignIn(str(file))
    access = Access(TOKEN, False, sign_in=sign_in)
    root, sender, reader = (signed_in(sign_in, f"{name}Key", f"{name}Secret") for name in ("root", "sender", "reader"))
    publish, delete = "/api/topics/orders/publish", "/api/topics/orders/delete"
    assert [status(access, "POST", path, who) for who in (root, sender, reader) for path in (publish, delete)] == [
        200, 200, 200, 403, 403, 403]
    assert [status(access, "GET", "/api/cluster", who) for who in (root, sender, reader)] == [200, 200, 200]
    person = access.person(sender)
    assert person.name == "senderKey" and person.refusal_to_send("orders") is None
    assert "senderKey may not do this" in person.refusal_to_send("stock")
    assert person.refusal_to_read("stock") is None and person.refusal_to_read("orders")
    assert access.person(root).refusal_to_send("anything") is None
    assert "Secret" not in repr(person)


def test_with_accounts_nothing_is_shown_to_strangers(file):
    access = Access(TOKEN, False, sign_in=SignIn(str(file)))
    host = {"host": "127.0.0.1:8088"}
    assert status(access, "GET", "/api/cluster", host) == 401
    assert status(access, "GET", "/", host) == status(access, "GET", "/api/session", host) == 200
    assert status(access, "GET", "/api/cluster", {**host, "authorization": "Bearer stranger"}) == 401
    assert status(access, "GET", "/api/cluster", {**host, "authorization": f"Bearer {TOKEN}"}) == 200


@pytest.mark.parametrize(("key", "secret"), [
    ("rootKey", "wrong"), ("nobody", "rootSecret"), ("", ""), ("rootKey", ""), ("rootKey", "\ud800"), ("é", "é")])
def test_wrong_secret_opens_no_session(file, key, secret):
    assert SignIn(str(file)).open(key, secret) is None


def test_attempts_to_guess_a_secret_are_slowed_down(file, monkeypatch):
    sign_in = SignIn(str(file))
    for _ in range(5):
        assert sign_in.open("rootKey", "guess") is None
    with pytest.raises(TooManyAttemptsError, match="wait 60 s"):
        sign_in.open("rootKey", "rootSecret")
    assert sign_in.open("readerKey", "readerSecret") is not None
    for number in range(95):
        sign_in.open(f"nobody{number}", "guess")
    with pytest.raises(TooManyAttemptsError):
        sign_in.open("readerKey", "readerSecret")
    monkeypatch.setattr(access_rules, "_FAILURES_S", 0.0)
    assert sign_in.open("rootKey", "rootSecret") is not None


def test_session_ends_with_its_account_its_secret_and_its_user(file, monkeypatch):
    sign_in = SignIn(str(file))
    access = Access(TOKEN, False, sign_in=sign_in)
    root, sender, reader = (signed_in(sign_in, f"{name}Key", f"{name}Secret") for name in ("root", "sender", "reader"))
    file.write_text(ACCOUNTS.replace("senderSecret", "anotherSecret").partition("- accessKey: readerKey")[0], "utf-8")
    assert [access.person(who) is not None for who in (root, sender, reader)] == [True, False, False]
    file.write_text("accounts: [", "utf-8")  # half written: what was read before stays
    assert access.person(root) is not None
    sign_in.close(access_rules.bearer(root))
    assert access.person(root) is None
    file.write_text(ACCOUNTS, "utf-8")
    root = signed_in(sign_in, "rootKey", "rootSecret")
    monkeypatch.setattr(access_rules, "IDLE_S", 0.0)
    assert access.person(root) is None


def test_oldest_session_ends_when_there_are_too_many(file, monkeypatch):
    monkeypatch.setattr(access_rules, "MAX_SESSIONS", 2)
    sign_in = SignIn(str(file))
    tokens = [sign_in.open("rootKey", "rootSecret")[0] for _ in range(3)]
    assert [sign_in.person(token) is not None for token in tokens] == [False, True, True]


@pytest.mark.parametrize(("text", "problem"), [
    (None, "No such file"), ("", "missing or empty"), ("accounts: []", "no account"), ("accounts: 7", "a list")])
def test_unusable_file_is_refused_at_the_start(file, text, problem):
    file.unlink()
    if text is not None:
        file.write_text(text, "utf-8")
    with pytest.raises(AclException, match=problem):
        SignIn(str(file))
