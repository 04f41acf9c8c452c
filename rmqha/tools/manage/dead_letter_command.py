"""`rmqha dlq`: list, show and resend dead letters, the messages that a group failed on too often."""
import sys
from collections.abc import Iterable
from itertools import islice
from typing import Any

import click

from rmqha.common.compression import MissingBody
from rmqha.common.program import examples
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin
from rmqha.tools.connection import connected, needed_namesrv
from rmqha.tools.manage import dead_letters
from rmqha.tools.manage.completion import complete_dead_letter_group, complete_topic
from rmqha.tools.manage.dead_letters import (
    DeadLetter,
    DeadLetterCount,
    Marks,
    Reading,
    Resender,
    Resent,
    Start,
    group_of,
)
from rmqha.tools.manage.masters import ManageGroup, Outcomes, broker_option, cluster_options
from rmqha.tools.manage.topic_command import names_cell, time_cell
from rmqha.tools.manage.topics import masters_and_crashed, perm_text
from rmqha.tools.messages.positions import COMMITTED, LATEST, Position, PositionType
from rmqha.tools.terminal import (
    CannotAnswerError,
    WorkFailedError,
    cell,
    counted,
    emit,
    iso_time,
    progress,
    put,
    render_table,
    size_type,
)
from rmqha.tools.view.questions import body_view

DEFAULT_COUNT = 50
BODY_OF_ROW, BODY_OF_OBJECT = 60, 256  # bytes
MOST_SHOWN, MOST_BODY = 100_000, 1 << 20
_PLACES = "an offset, -5 (the last 5 of each queue), or a time, such as 10m (10 minutes ago)"

group_argument = click.argument("group", shell_complete=complete_dead_letter_group)
readable_option = click.option("--make-readable", is_flag=True, help="First give the dead letter topic the permission "
                               "to read: brokers before 4.9.2 create it write-only.")


@click.group("dlq", cls=ManageGroup)
def dlq_group() -> None:
    """List, show and resend dead letters.

    A message that a group failed on 16 times (its retryMaxTimes) becomes a dead letter of the group: the broker stores
    it in the topic %DLQ%GROUP, which no consumer reads.
    """


@dlq_group.command("list", short_help="List the groups with dead letters.", epilog=examples(
    "rmqha dlq list", "rmqha dlq list 'billing*' -o json"))
@click.argument("pattern", required=False, shell_complete=complete_dead_letter_group)
@click.option("--all", "every", is_flag=True, help="Also the groups whose dead letters are all deleted.")
@broker_option
@cluster_options
def list_command(pattern: str | None, every: bool, namesrv: str | None, cluster: str | None, broker: str | None,
                 timeout_s: float, output: str) -> None:
    """List the groups with dead letters: how many, and when the first and the last one were stored.

    `new` are those that `rmqha dlq resend --all` or `--new` has not sent again yet. PATTERN has `*`, `?` and `[a-z]`.
    """
    with connected(needed_namesrv(namesrv), timeout_s) as admin:
        rows, outcomes = dead_letters.list_dead_letters(
            admin, masters_and_crashed(admin, cluster, broker), pattern)
    rows = [row for row in rows if every or row.count]
    if output != "table":
        emit([_count_object(row) for row in rows], output)
    elif rows:
        put(render_table(["group", "dead letters", "new", "oldest", "newest", "perm", "brokers"], [
            [cell(row.group), f"{row.count:,}", f"{row.new:,}", time_cell(row.oldest_ms), time_cell(row.newest_ms),
             row.perm, names_cell(row.brokers)] for row in rows], {"dead letters", "new"}))
    else:
        put("no dead letters")
    if any(not row.is_readable for row in rows):
        put("note: a topic without R can't be read; `rmqha dlq show GROUP --make-readable` changes that", err=True)
    outcomes.finish()


def _count_object(row: DeadLetterCount) -> dict[str, Any]:
    return {"group": row.group, "dead_letters": row.count, "new": row.new, "oldest_ms": row.oldest_ms,
            "oldest_time": iso_time(row.oldest_ms) if row.oldest_ms else None, "newest_ms": row.newest_ms,
            "newest_time": iso_time(row.newest_ms) if row.newest_ms else None, "perm": row.perm,
            "readable": row.is_readable, "brokers": list(row.brokers)}


def _start(position: Position | None, is_new: bool, option: str) -> Start:
    """Return where to begin; a usage error for a position that only consumers have."""
    if position is not None and is_new:
        raise click.UsageError(f"{option} and --new exclude each other")
    if position is None:
        return Start(is_new=is_new)
    if position.word in (LATEST, COMMITTED):
        raise click.UsageError(f"{option}: give {_PLACES}, not {position.word}")
    return Start(position.offset, position.time_ms)


def _reading(admin: ClusterAdmin, group: str, cluster: str | None, broker: str | None, with_perm: bool) -> Reading:
    brokers = masters_and_crashed(admin, cluster, broker)
    if with_perm:
        for each, change in sorted(dead_letters.make_readable(admin, brokers, group).outcomes.values.items()):
            if change.is_one:
                put(f"{each.name}: permission of {change.after.topicName} {perm_text(change.before.perm)} -> "
                    f"{perm_text(change.after.perm)}", err=True)
    return Reading(admin, brokers, group)


def _failed(reading: Reading, errors: dict[Broker, CannotAnswerError] | None = None) -> None:
    """Print the errors of brokers, and end the command with exit code 1 or 2 if there are any."""
    errors = {**reading.errors, **(errors or {})}
    Outcomes(dict.fromkeys(each for each in reading.brokers if each not in errors), errors).finish()


# ---- show


@dlq_group.command("show", short_help="Show the dead letters of a group.", epilog=examples(
    "rmqha dlq show billing", "rmqha dlq show billing --from 2h --count 1000 -o json > dead.jsonl"))
@group_argument
@click.option("--from", "begin", type=PositionType(), metavar="OFFSET|TIME",
              help=f"Where to begin: {_PLACES}. Default: the oldest one.")
@click.option("--new", "is_new", is_flag=True, help="Begin after those that `dlq resend --new` or `--all` has sent.")
@click.option("--count", type=click.IntRange(1, MOST_SHOWN), default=DEFAULT_COUNT, show_default=True,
              help="Show at most this many.")
@click.option("--body", "max_body", type=size_type(0, MOST_BODY), help="Bytes of each body to show. Default: "
              f"{BODY_OF_ROW} in a table, {BODY_OF_OBJECT} in JSON and YAML.")
@readable_option
@broker_option
@cluster_options
def show_command(group: str, begin: Position | None, is_new: bool, count: int, max_body: int | None,
                 make_readable: bool, namesrv: str | None, cluster: str | None, broker: str | None, timeout_s: float,
                 output: str) -> None:
    """Show the dead letters of a group, the oldest first.

    The message id is the one that the producer got. Origin is the topic that it sent to. JSON and YAML have all fields,
    one object per dead letter.
    """
    group, start = group_of(group), _start(begin, is_new, "--from")
    if max_body is None:
        max_body = BODY_OF_ROW if output == "table" else BODY_OF_OBJECT
    with connected(needed_namesrv(namesrv), timeout_s) as admin:
        reading = _reading(admin, group, cluster, broker, make_readable)
        letters = reading.letters(start)
        if output != "table":
            for letter in islice(letters, count):
                emit(letter.as_object(max_body, dead_letters.shown_bodies()), output)
        else:
            _put_table(islice(letters, count), max_body)
        more = next(letters, None) is not None
    if more:
        put(f"note: there are more; --count shows more than {count}", err=True)
    _failed(reading)


def _put_table(letters: Iterable[DeadLetter], max_body: int) -> None:
    rows = [[time_cell(letter.message.store_timestamp), _place(letter), cell(letter.origin_topic or ""),
             cell(letter.message_id), str(letter.message.reconsume_times), "yes" if letter.resent_from else "",
             cell(letter.message.tags or ""), cell(letter.message.keys or ""), _body_cell(letter, max_body)]
            for letter in letters]
    if rows:
        put(render_table(["stored", "queue@offset", "origin", "message id", "retries", "resent", "tag", "keys", "body"],
                         rows, {"retries"}))
    else:
        put("no dead letters")


def _place(letter: DeadLetter) -> str:
    return f"{cell(letter.broker.name)}:{letter.message.queue_id}@{letter.message.queue_offset}"


def _body_cell(letter: DeadLetter, max_body: int) -> str:
    body = letter.body(dead_letters.shown_bodies())
    if isinstance(body, MissingBody):
        return cell(f"({body.reason})")
    view = body_view(body, max_body)
    text = view.text if view.text is not None else f"({len(body)} bytes) {body[:max_body].hex()}"
    return cell(text) + (" ..." if view.is_cut else "")


# ---- resend


@dlq_group.command("resend", short_help="Send dead letters again.", epilog=examples(
    "rmqha dlq resend billing --all --dry-run", "rmqha dlq resend billing --new",
    "rmqha dlq resend billing --message-id 7F00000100002A9F0000000000000C3A",
    "rmqha dlq resend billing --since 2h --to orders"))
@group_argument
@click.option("--all", "every", is_flag=True, help="All dead letters of the group.")
@click.option("--new", "is_new", is_flag=True, help="Those that --all and --new have not sent again yet.")
@click.option("--since", type=PositionType(), metavar="OFFSET|TIME", help=f"Those from here on: {_PLACES}.")
@click.option("--message-id", "ids", multiple=True, help="The one with this id, as `rmqha dlq show` prints it: of the "
              "message, of its dead letter or of its origin; may be repeated. Of several with one id, the newest.")
@click.option("--to", "topic", shell_complete=complete_topic, help="Send to this topic, for all its groups. Default: "
              "to the retry topic of the group, so that only this group gets them.")
@click.option("--count", type=click.IntRange(1), help="Send at most this many, the oldest first.")
@click.option("--dry-run", is_flag=True, help="Print which ones would be sent, and send nothing.")
@readable_option
@broker_option
@cluster_options
def resend_command(group: str, every: bool, is_new: bool, since: Position | None, ids: tuple[str, ...],
                   topic: str | None, count: int | None, dry_run: bool, make_readable: bool, namesrv: str | None,
                   cluster: str | None, broker: str | None, timeout_s: float, output: str) -> None:
    """Send dead letters again, the oldest first, and print the outcome of each.

    Consumers get the same body, keys, tag, properties and message id, with the count of retries at 0, and the property
    RESENT_DEAD_LETTER_ID. A dead letter counts as sent when the broker answers SEND_OK. It stays in the dead letter
    topic: --new sends each one only once. Exit code 1 also when one of them was not sent.
    """
    if sum((every, is_new, since is not None, bool(ids))) != 1:
        raise click.UsageError("choose what to send with one of --all, --new, --since and --message-id")
    group, start = group_of(group), _start(since, is_new, "--since")
    with connected(needed_namesrv(namesrv), timeout_s) as admin:
        reading = _reading(admin, group, cluster, broker, make_readable)
        resender = Resender(admin, reading, topic)
        letters: Iterable[DeadLetter] = reading.letters(start)
        unknown: list[str] = []
        if ids:
            letters, unknown = dead_letters.chosen(letters, ids)
        total = len(ids) or min(reading.count(start), count or sys.maxsize)
        marks = Marks(admin, reading) if every or is_new else None
        tally = _Tally(output, resender.topic, dry_run)
        with _shown_progress(total) as come_to:
            if dry_run:
                for number, letter in enumerate(islice(letters, count), 1):
                    tally.note(resender.problem(letter) or Resent(letter, resender.topic, letter.broker.name))
                    come_to(number)
            else:
                try:
                    dead_letters.resend(resender, islice(letters, count), marks,
                                        lambda resent: come_to(tally.note(resent)))
                finally:
                    tally.put_summary()
    if dry_run:
        tally.put_summary()
    for each in unknown:
        put(f"no dead letter of {group} has the id {each}", err=True)
    _failed(reading, marks.errors if marks is not None else None)
    if tally.failed or unknown:
        raise WorkFailedError(f"{counted(tally.failed + len(unknown), 'dead letter')} not sent")


class _Tally:
    """Prints and counts the outcomes."""

    def __init__(self, output: str, to: str, dry_run: bool) -> None:
        self._output, self._to, self._dry_run = output, to, dry_run
        self.sent = self.failed = 0

    def note(self, resent: Resent) -> int:
        """Print one outcome; return how many there are."""
        is_good = not resent.error if self._dry_run else resent.is_ok
        self.sent += is_good
        self.failed += not is_good
        letter = resent.letter
        if self._output != "table":
            emit({"deadLetterId": letter.dead_letter_id, "msgId": letter.message_id, "originMsgId": letter.origin_id,
                  "originTopic": letter.origin_topic, "broker": letter.broker.name, "queue": letter.message.queue_id,
                  "offset": letter.message.queue_offset, "to": resent.to, "toBroker": resent.broker,
                  "status": resent.status.name if resent.status is not None else None,
                  "offsetMsgId": resent.offset_msg_id, "error": resent.error or None}, self._output)
        else:
            outcome = "would be sent" if self._dry_run else "SEND_OK"
            put(f"{_place(letter)}  {cell(letter.message_id)}  "
                + (outcome if is_good else f"FAILED: {cell(resent.error)}"))
        return self.sent + self.failed

    def put_summary(self) -> None:
        """Print the counts to standard error."""
        done = "would be sent" if self._dry_run else "sent"
        put(f"{counted(self.sent, 'dead letter')} {done} to {self._to}"
            + (f", {self.failed} failed" if self.failed else ""), err=True)


def _shown_progress(total: int) -> Any:
    """Return a progress bar, unless the printed outcomes show the progress on the same terminal."""
    return progress("resending", 0 if sys.stdout.isatty() else total)
