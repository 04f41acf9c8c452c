"""Each request code called rightly and wrongly on a real 4.9 and on rmqha: the same answers, but for what is listed.

`python -m tests.interop.test_request_codes_beside_java` writes docs/request-codes.md.
"""
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fuzz.beside_java import compare
from tests.interop.request_code_cases import BROKER, all_cases
from tests.interop.request_code_compare import Outcome, Servers
from tests.interop.request_code_table import KNOWN, Row, render
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.sources import ROOT

PAGE = ROOT / "docs" / "request-codes.md"

FUZZED, SEED = 240, 11

pytestmark = pytest.mark.java


def started(kind: str, folder: Path, nodes: list) -> Servers:
    """A stocked name server and broker."""
    namesrv = NamesrvNode(kind, folder / kind / "namesrv")
    nodes.append(namesrv)
    namesrv.start()
    broker = BrokerNode(kind, folder / kind / "broker", namesrv.address, mappedFileSizeCommitLog=16 << 20)
    nodes.append(broker)
    broker.start()
    servers = Servers(namesrv, broker)
    servers.stock()
    return servers


def compared(folder: Path, nodes: list) -> tuple[list[Row], dict[str, Servers]]:
    """All cases on both, and the servers."""
    cases = all_cases()
    servers = {kind: started(kind, folder, nodes) for kind in ("java", "rmqha")}
    answers = {kind: one.call_all(cases) for kind, one in servers.items()}
    rows = [Row(case, Outcome.of(java, case), Outcome.of(rmqha, case))
            for case, java, rmqha in zip(cases, answers["java"], answers["rmqha"], strict=True)]
    return rows, servers


@pytest.fixture(scope="module")
def both(module_nodes, tmp_path_factory) -> Iterator[tuple[list[Row], dict[str, Servers]]]:
    rows, servers = compared(tmp_path_factory.mktemp("request-codes"), module_nodes)
    yield rows, servers
    for one in servers.values():
        one.close()


def test_answers_are_the_originals_or_listed(both):
    unexplained = [text for row in both[0] if (text := row.unexplained())]
    assert not unexplained, "\n".join(unexplained[:20])


def test_each_listed_difference_is_one(both):
    seen = {row.known for row in both[0] if row.verdict == "differs"}
    assert [KNOWN[index].reason for index in range(len(KNOWN)) if index not in seen] == []


def test_right_calls_succeed(both):
    """But for those that have nobody to answer them, or nothing to find."""
    failed = {(row.case.code.server, row.case.code.number) for row in both[0]
              if row.case.what == "right" and row.rmqha.code != 0}
    assert failed == {(BROKER, number) for number in (50, 51, 52, 53, 324, 325)}


def test_no_right_request_is_answered_with_an_exception(both):
    """What rmqha says is about the request, and no slip of its own."""
    slips = ("AttributeError", "TypeError", "KeyError", "IndexError", "UnboundLocalError", "AssertionError")
    assert [row.rmqha for row in both[0] if row.rmqha.remark and row.rmqha.remark.startswith(slips)] == []


def test_consumers_are_asked_the_same(both):
    """Codes 40, 220, 221, 307 and 309 as the broker sends them."""
    asked = {kind: one.online.questions() for kind, one in both[1].items()}
    assert {code for code, *_ in asked["java"]} == {40, 220, 221, 307, 309}
    only = {kind: asked[kind] - asked[other] for kind, other in (("java", "rmqha"), ("rmqha", "java"))}
    assert only["rmqha"] == set()
    # rmqha refuses to ask for the offsets of no topic
    assert {(code, fields) for code, _flag, fields, _body in only["java"]} == {(221, (("group", "codes-online"),))}


def test_the_page_is_up_to_date(both):
    assert PAGE.read_text("utf-8") == render(both[0]), "run: python -m tests.interop.test_request_codes_beside_java"


def test_broken_frames_meet_the_same_end(both):
    """Answered with the same code, closed, or not answered; the last test here, as it leaves the servers in disorder."""
    new = [one for one in compare(both[1], FUZZED, SEED) if not one.is_known()]
    assert not new, new[:5]


def write_page() -> None:
    """Call all cases, and write the page."""
    nodes: list = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stack.callback(lambda: [node.kill() for node in reversed(nodes)])
        rows, servers = compared(Path(folder), nodes)
        for one in servers.values():
            stack.callback(one.close)
        PAGE.write_text(render(rows), "utf-8")
    sys.stdout.write(f"wrote {PAGE.name}: {len(rows)} cases\n")
    sys.stdout.writelines(f"{text}\n" for row in rows if (text := row.unexplained()))


if __name__ == "__main__":
    write_page()
