"""The table of required permissions at the end of docs/acl.md; `python -m tests.broker.test_access_table` writes it.

Each request code that a broker serves is sent to a running broker by seven kinds of client, for their own things and
for another account's.
"""
import ssl
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rmqha.acl import common
from rmqha.acl.common import needs_of
from rmqha.common import mix_all
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.common.protocol import request_code
from rmqha.namesrv import namesrv_startup
from rmqha.namesrv.default_request_processor import DefaultRequestProcessor
from rmqha.namesrv.namesrv_controller import NamesrvController
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_config import ServerConfig
from tests.broker.support import (
    ACL_OTHER,
    ADMIN,
    CASES,
    DENIED,
    HOME,
    OPEN_HOST,
    OWN,
    PUBBER,
    SUBBER,
    Case,
    Things,
    acl_broker,
    is_refused,
)
from tests.support.raw_remoting import Answer, SignedClient, binary_header, frame
from tests.support.sources import ROOT

PAGE = ROOT / "docs" / "acl.md"
MARK = "<!-- from here on: python -m tests.broker.test_access_table -->"
WHO = {
    "unsigned": (None, HOME),
    "wrong signature": ((PUBBER[0], "another secret"), HOME),
    "denied": (DENIED, HOME),
    "PUB": (PUBBER, HOME),
    "SUB": (SUBBER, HOME),
    "admin": (ADMIN, HOME),
    "address": (None, OPEN_HOST),
}
NAMES = {code: name for name, code in vars(request_code).items() if name.isupper()}
RIGHTS = {common.PUB: "PUB", common.SUB: "SUB", common.ANY: "PUB or SUB"}
HEAD = """
## Which request needs what

Each request code that a broker serves was sent to a broker by seven kinds of client:

- without an account, and with a wrong signature: every request was refused;
- by an admin without lists of permissions, and by a client without an account whose address is in
  `globalWhiteRemoteAddresses`: every request was served, for any topic and group;
- by an account that is denied everything, by one with PUB on its topic only, and by one with SUB on its topic and
  group only: the last column shows which of them were served.

"any account" means every account, even the one that is denied everything, and for any topic and group. "PUB" and "SUB"
in the last column mean the account with that permission: it was served for its own topic and group, and refused for
those of another account. Both kinds of header, both ports, TLS and one-way requests are treated alike.

"""


@dataclass
class Row:
    """A case, and the owners for whose things each client was served."""

    case: Case
    served: dict[str, str]

    @property
    def line(self) -> str:
        """The row of the table."""
        case = self.case
        name = NAMES[case.code] + (f" {case.what}" if case.what else "")
        return f"| {case.code} | {name} | {needed(case)} | {self.accounts} |"

    @property
    def accounts(self) -> str:
        """The accounts other than the admin that were served."""
        if self.served["denied"]:
            return "any account"
        return ", ".join(who for who in ("PUB", "SUB") if self.served[who]) or "admins only"


def needed(case: Case) -> str:
    """Return what a request needs according to the code."""
    if common.need_admin_perm(case.code):
        return "an admin"
    request = RemotingCommand(case.code)
    request.ext_fields, request.body = case.fields_of(OWN), case.body_of(OWN)
    parts = []
    for resource, perm in needs_of(request):
        if resource == "RMQ_SYS_TRACE_TOPIC":
            continue
        group = resource.startswith(mix_all.RETRY_GROUP_TOPIC_PREFIX)
        what = "the group" if group else "the dead letter topic" if resource.startswith("%DLQ%") else "the topic"
        if "further queue" in case.what:
            what = "the further queue"
        parts.append(f"{RIGHTS[perm]} on {what}")
    return ", ".join([*dict.fromkeys(parts), *([case.record] if case.record else [])]) or "an account"


class BinaryClient(SignedClient):
    """A client that encodes headers as ROCKETMQ."""

    def request(self, code: int, body: bytes = b"", **fields: object) -> Answer:
        """Sign, send, and wait for the answer."""
        # This header encoding has two bytes for the code.
        if code > 0x7FFF:
            return super().request(code, body, **fields)
        opaque = next(self._opaques)
        self.send(frame(binary_header(code, opaque, 0, **self.signed(fields, body)), body, 1))
        while True:
            answered, answer = self.read_frame()
            if answered == opaque:
                return answer


class TlsClient(SignedClient):
    """A client that speaks TLS."""

    def __init__(self, address: str, account: tuple[str, str] | None, source: str) -> None:
        super().__init__(address, account, source)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self.socket = context.wrap_socket(self.socket)


def served_for(broker, client: SignedClient, case: Case, things: Things) -> bool:
    """Return whether a client's request is served for an owner's things."""
    things = broker.things(things, case.ends_half)
    answer = client.request(case.code, case.body_of(things), **case.fields_of(things))
    return not is_refused(answer)


def walk(folder: Path, kind: type[SignedClient] = SignedClient, is_fast: bool = False) -> list[Row]:
    """Send every request as every client."""
    rows = []
    own, other = replace(OWN), replace(ACL_OTHER)
    with acl_broker(folder) as broker:
        address = broker.fast_address if is_fast else broker.address
        clients = {who: kind(address, *account_and_source) for who, account_and_source in WHO.items()}
        try:
            for case in CASES:
                served = {}
                for who, client in clients.items():
                    mine, others = (served_for(broker, client, case, things) for things in (own, other))
                    assert mine or not others, f"{who} gets {case.code} {case.what} for another's things only"
                    served[who] = "all" if others else "own" if mine else ""
                rows.append(Row(case, served))
        finally:
            for client in clients.values():
                client.__exit__()
    return rows


def render(rows: list[Row]) -> str:
    """Return the generated part of docs/acl.md."""
    parts = [MARK, HEAD.rstrip("\n"), "", "| code | request | needs | served |", "|---|---|---|---|"]
    parts += [row.line for row in sorted(rows, key=lambda row: (row.case.code, CASES.index(row.case)))]
    parts += ["", "All other codes, which a broker does not serve, need an admin too.", ""]
    parts += ["The name server has no access control, neither in 4.9 nor here. Let only brokers, clients and operators",
              "reach its port. Every client that reaches it may send all of these requests:", "",
              "| code | request to the name server |", "|---|---|"]
    parts += [f"| {code} | {NAMES[code]} |" for code in sorted(namesrv_codes())]
    parts += [""]
    return "\n".join(parts)


def namesrv_controller(folder: Path) -> NamesrvController:
    """Return a name server that is not started."""
    return NamesrvController(NamesrvConfig(kvConfigPath=str(folder / "kv.json"),
                                           configStorePath=str(folder / "namesrv.conf")), ServerConfig(listenPort=0))


def namesrv_codes() -> set[int]:
    """Return the request codes that a name server serves."""
    with tempfile.TemporaryDirectory() as folder:
        server = namesrv_controller(Path(folder))
        return set(DefaultRequestProcessor(server.namesrv_config, server.configuration, server.kv_config_manager,
                                           server.route_info_manager)._handlers)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return walk(tmp_path_factory.mktemp("acl"))


def test_page_has_the_table_of_this_run(rows):
    text = PAGE.read_text("utf-8")
    assert text[text.index(MARK):] == render(rows), "run: python -m tests.broker.test_access_table"


@pytest.mark.parametrize("kind", [BinaryClient, TlsClient])
@pytest.mark.parametrize("is_fast", [False, True], ids=["main port", "fast port"])
def test_each_port_and_header_encoding_gives_the_same_table(rows, tmp_path, kind, is_fast):
    assert [row.line for row in walk(tmp_path / "home", kind, is_fast)] == [row.line for row in rows]


def test_nothing_is_served_without_a_valid_signature(rows):
    assert {row.served[who] for row in rows for who in ("unsigned", "wrong signature")} == {""}


def test_admin_and_open_address_may_do_everything(rows):
    assert {row.served[who] for row in rows for who in ("admin", "address")} == {"all"}


def test_account_without_permissions_gets_nothing_of_a_topic_or_group(rows):
    served = {(row.case.code, row.case.what) for row in rows if row.served["denied"]}
    assert served == {
        (21, ""), (26, ""), (28, ""), (34, "of a producer"), (35, "of a producer"), (52, ""), (201, ""), (204, ""),
        (305, ""), (315, "of the broker"), (328, ""), (907, ""), (1007, "")}


def test_account_with_permissions_gets_nothing_of_another_accounts_topic_or_group(rows):
    for row in rows:
        for who in ("PUB", "SUB"):
            assert row.served[who] in ("", "own") or row.served["denied"] == "all", row.line


def test_each_code_that_a_broker_serves_is_in_the_table(tmp_path):
    with acl_broker(tmp_path) as broker:
        server = broker.controller.remoting_server
        codes = set(server.processor_table) | set(server.default_request_processor.processor._handlers)
        assert codes == {case.code for case in CASES}
        with broker.client(SUBBER) as client, broker.client(ADMIN) as admin:
            for code in (set(NAMES) | {0, -1, 361, 9999, 200_050}) - codes:
                assert is_refused(client.request(code, topic=OWN.topic, group=OWN.group)), code
                assert admin.request(code).code == 3, code  # REQUEST_CODE_NOT_SUPPORTED


def test_name_server_requires_no_account(tmp_path):
    controller = namesrv_controller(tmp_path)
    namesrv_startup.start(controller)
    address = f"127.0.0.1:{controller.remoting_server.local_listen_port}"
    try:
        with SignedClient(address, None) as nobody, SignedClient(address, ADMIN) as admin:
            for code in sorted(namesrv_codes()):
                answers = [client.request(code, topic="T", cluster="C") for client in (nobody, admin)]
                assert answers[0].code == answers[1].code and not any(map(is_refused, answers)), code
    finally:
        controller.shutdown()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        table = render(walk(Path(home) / "home"))
    PAGE.write_text(PAGE.read_text("utf-8").split(MARK)[0] + table, "utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
