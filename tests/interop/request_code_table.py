"""What is known to differ from the answers of the original, and the table of docs/reference/request-codes.md."""
import re
from collections import Counter
from dataclasses import dataclass

from tests.interop.request_code_cases import BROKER, NAMESRV, Case
from tests.interop.request_code_compare import Outcome

HEAD = """# Request codes, beside the original

Each code that RocketMQ's broker and name server handle, and 30003 of rmqha's own, is called on a real 4.9.7 and on
rmqha, which hold the same topics, groups, messages and clients: with right fields, without each field, with each field
wrong in several ways (empty, no number, negative, beyond its width, unknown, illegal, too long), without any field,
with a right, a missing and a broken body, one-way, and with both kinds of header. Compared are response code, remark,
fields of the header and the body; addresses, times, message ids and hashes of objects left out.
`tests/interop/request_code_cases.py` has the cases. This page is written by
`python -m tests.interop.test_request_codes_beside_java`.

- **same**: all of that is equal.
- **words**: the same code, and the original's remark is the text of a Java exception (mostly a NullPointerException).
  rmqha says what is wrong with the request: `the custom field <topic> is null`.
- **differs**: listed below, with the reason.

"""


@dataclass(frozen=True)
class Known:
    """A difference that is meant, or the original's: `cases` is a pattern of what is called."""

    reason: str
    codes: dict[int, str]
    server: str = BROKER

    def covers(self, case: Case) -> bool:
        """Whether it is this case's."""
        pattern = self.codes.get(case.code.number)
        return pattern is not None and case.code.server == self.server and re.fullmatch(pattern, case.what) is not None


NUMBER = "(empty|no number|a fraction|2\\^31|2\\^63)"
KNOWN = [
    Known("A missing or malformed field on which the answer depends is refused by its name; the original goes on with "
          "null or 0, and finds, commits, clones or resets something else.",
          {14: "without consumerGroup", 15: "without (consumerGroup|topic)", 222: f"timestamp: {NUMBER}",
           223: "without topic", 308: "without compareGroup", 314: "without (srcGroup|destGroup)"}),
    Known("The first thing that is wrong is another one: the field, not the topic that is missing too.",
          {code: "no (fields|extFields).*" for code in (10, 310, 320, 324, 325, 17)}),
    Known("A reply's sysFlag is read, and so has to be there; the original does not look at it.",
          {324: f"(without sysFlag|sysFlag: {NUMBER})", 325: "without f"}),
    Known("A number of messages that no array of Java's can have is an exception there; rmqha gives what fits.",
          {11: "maxMsgNums: (negative|2\\^31 - 1)", 12: "maxNum: (negative|2\\^31 - 1)"}),
    Known("Java's int wraps when so many units are asked for, and none are given.", {321: "count: 2\\^31 - 1"}),
    Known("The original makes a consume queue of any name that is asked about, and folders outside of its own; rmqha "
          "has no queue for such a name.", {31: "topic: (empty|illegal)",
                                            321: "topic: .*|queueId: (negative|2\\^31 - 1)"}),
    Known("An offset of a topic or a queue that the broker does not have is refused; the original keeps it for ever.",
          {15: "topic: (empty|unknown|illegal|too long)|queueId: (negative|2\\^31 - 1)"}),
    Known("A batch that cannot be read is an illegal message; the original ends in an exception.",
          {320: "(no body|body of noise|body cut)"}),
    Known("A body that is no object is refused; the original takes it for an absent one, and says SUCCESS without "
          "having done anything.", {46: "body (\\[\\]|null)", 200: "body (\\[\\]|null)"}),
    Known("A heartbeat without a client id registers nobody.", {34: "(body {}|no client)"}),
    Known("Numbers of queues below 0 or above 65536 are refused; the original stores them, and then each send fails, "
          "or a question for the topic's offsets takes all memory.",
          {17: "(read|write)QueueNums: (negative|2\\^31 - 1)"}),
    Known("A change that is answered with SUCCESS has happened: a bad value is refused.", {25: "no number"}),
    Known("4.9.8 has this black list, 4.9.7 not yet.", {25: "black listed key"}),
    Known("rmqha has configuration keys of its own, and those of 4.9.8.", {26: ".*"}),
    Known("rmqha tells about replication, too.", {28: ".*"}),
    Known("Without access control there is nothing to change: said in so many words, where the original's remark is "
          "that of a NullPointerException.", {50: ".*", 51: ".*", 53: ".*"}),
    Known("The original gives no answer when access control is off.", {52: ".*"}),
    Known("The original does not have this request, by which replicas of rmqha are compared.", {30003: ".*"}),
    Known("The original answers a one-way request that finds messages.", {12: "one-way", 33: "one-way"}),
    Known("A broker without a name, an address or a cluster, or with a negative id, is not registered.",
          {103: "(without |)(brokerName|brokerAddr|clusterName)(: empty|)|brokerId: negative"}, NAMESRV),
    Known("A checksum that is no number is refused; the original does without the check.",
          {103: "bodyCrc32: (empty|no number)"}, NAMESRV),
    Known("An entry without a value is refused; the original stores null.", {100: "without value"}, NAMESRV),
    Known("A body that is no object is refused; the original takes it for an absent one.",
          {322: "body (\\[\\]|null)"}, NAMESRV),
    Known("A change that is answered with SUCCESS has happened: what is no boolean is refused; the original takes it "
          "for false.", {318: "no boolean"}, NAMESRV),
    Known("4.9.8 has this black list, 4.9.7 not yet.", {318: "black listed key"}, NAMESRV),
    Known("rmqha has the configuration keys of 4.9.8.", {319: ".*"}, NAMESRV),
]


@dataclass
class Row:
    """A case and the two outcomes."""

    case: Case
    java: Outcome
    rmqha: Outcome

    @property
    def differences(self) -> list[str]:
        """See Outcome.differences."""
        return self.java.differences(self.rmqha)

    @property
    def known(self) -> int | None:
        """Index of the entry of KNOWN that covers this case."""
        return next((index for index, entry in enumerate(KNOWN) if entry.covers(self.case)), None)

    @property
    def verdict(self) -> str:
        """same, words, or differs."""
        parts = self.differences
        return "same" if not parts else "words" if parts == ["words"] else "differs"

    def unexplained(self) -> str | None:
        """What differs and is in no entry, for people to read."""
        if self.verdict != "differs" or self.known is not None:
            return None
        code = self.case.code
        return (f"{code.server} {code.number} {code.name}, {self.case.what}: {', '.join(self.differences)}\n"
                f"  original: {self.java}\n  rmqha:    {self.rmqha}")


def render(rows: list[Row]) -> str:
    """docs/reference/request-codes.md."""
    by_code: dict[tuple[str, int, str], list[Row]] = {}
    for row in rows:
        code = row.case.code
        if code.is_served:
            by_code.setdefault((code.server, code.number, code.name), []).append(row)
    notes: list[int] = []
    parts = [HEAD]
    for server, title in ((BROKER, "Broker"), (NAMESRV, "Name server")):
        parts.append(f"## {title}\n\n| code | name | cases | same | words | differs |\n|---|---|---|---|---|---|\n")
        parts += [_line(number, name, found, notes) for (where, number, name), found in sorted(by_code.items())
                  if where == server]
        others = [row for row in rows if row.case.code.server == server and not row.case.code.is_served]
        answer = "REQUEST_CODE_NOT_SUPPORTED" if server == BROKER else "no answer"
        parts.append(f"\n{len(others)} other codes (those of the other server, those that are defined and not handled, "
                     f"and unknown ones): {answer}, the same in {sum(row.verdict == 'same' for row in others)}.\n\n")
    parts.append("## What differs, and why\n\n")
    parts += [f"{number}. {KNOWN[index].reason}\n" for number, index in enumerate(notes, 1)]
    total = Counter(row.verdict for row in rows)
    parts.append(f"\nOf {len(rows)} cases {total['same']} are the same, {total['words']} have other words, "
                 f"{total['differs']} differ.\n")
    return "".join(parts)


def _line(number: int, name: str, found: list[Row], notes: list[int]) -> str:
    count = Counter(row.verdict for row in found)
    reasons: Counter[int] = Counter(row.known for row in found if row.verdict == "differs" and row.known is not None)
    notes += [index for index in reasons if index not in notes]
    marks = ", ".join(f"{times} ({notes.index(index) + 1})" for index, times in reasons.items())
    numbers = " | ".join(str(count[verdict] or "") for verdict in ("same", "words"))
    return f"| {number} | {name} | {len(found)} | {numbers} | {marks} |\n"
