"""Access rules of the console, without a server."""
import pytest

from rmqha.tools.console.access import Access, host_name, is_loopback

TOKEN = "t" * 20
WRITE = {"host": "127.0.0.1:8088", "x-rmqha-console": "1", "content-type": "application/json",
         "authorization": f"Bearer {TOKEN}"}
OPEN = Access(TOKEN, token_for_reading=False, writes=True, hosts=frozenset(("mq.example.org",)))
FAR = Access(TOKEN, token_for_reading=True, writes=False)


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
