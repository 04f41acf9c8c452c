"""The etcd client's choice of a member, and its timeouts."""
import json
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rmqha.controller.etcd_client import EtcdClient, EtcdSettings, EtcdUnavailableError, range_of
from tests.support import ports
from tests.support.wait import at_least

pytest.importorskip("etcd3gw", reason="needs the extra `etcd`")

TIMEOUT_S = 2.0
ASKED = [], [range_of(b"k")]


class Member:
    """A member that answers each transaction with its own revision, `delay_s` later."""

    def __init__(self, revision, delay_s=0.0):
        self.asked = 0
        member = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                member.asked += 1
                self.rfile.read(int(self.headers["Content-Length"]))
                at_least(delay_s)
                body = json.dumps({"header": {"revision": str(revision)}}).encode()
                try:
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:  # the client no longer waits
                    self.close_connection = True

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = "http", "127.0.0.1", self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def client_of():
    with ExitStack() as stack:
        def client(*members):
            for member in members:
                if isinstance(member, Member):
                    stack.callback(member.close)
            made = EtcdClient(EtcdSettings(tuple(member.endpoint if isinstance(member, Member) else member
                                                 for member in members), TIMEOUT_S))
            stack.callback(made.close)
            return made
        yield client


def nobody():
    return "http", "127.0.0.1", ports.free_port()


def test_hanging_member_is_skipped_and_not_asked_again(client_of):
    hanging, well = Member(1, delay_s=2 * TIMEOUT_S), Member(2)
    client = client_of(hanging, well)
    answers = [client.transaction(*ASKED) for _ in range(3)]
    assert [(answer.revision, answer.sure) for answer in answers] == [(2, False), (2, True), (2, True)]
    assert (hanging.asked, well.asked) == (1, 3)


def test_first_member_is_asked_again_with_a_long_timeout_when_no_other_answers(client_of):
    slow = Member(1, delay_s=TIMEOUT_S / 2)
    client = client_of(slow, nobody(), nobody())
    answer = client.transaction(*ASKED)
    assert (answer.revision, answer.sure, slow.asked) == (1, False, 2)


def test_only_member_gets_the_long_timeout(client_of):
    slow = Member(1, delay_s=TIMEOUT_S / 2)
    answer = client_of(slow).transaction(*ASKED)
    assert (answer.revision, answer.sure, slow.asked) == (1, True, 1)


def test_last_remaining_member_gets_the_long_timeout(client_of):
    slow = Member(2, delay_s=TIMEOUT_S / 2)
    answer = client_of(nobody(), slow).transaction(*ASKED)
    assert (answer.revision, answer.sure, slow.asked) == (2, False, 1)


def test_no_member_answers(client_of):
    first, second = nobody(), nobody()
    with pytest.raises(EtcdUnavailableError) as told:
        client_of(first, second).transaction(*ASKED)
    assert str(told.value).count(f"127.0.0.1:{first[2]}: ") == 2 and f"; 127.0.0.1:{second[2]}: " in str(told.value)
