"""`Changes`: the changing part of the console's API, one method per path. The operations are rmqha.tools.manage's."""
import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from rmqha.common import sys_flags
from rmqha.common.message.message import Message, MessageQueue
from rmqha.common.texts import Secret
from rmqha.tools.admin.cluster_admin import Broker
from rmqha.tools.console.access import Person, SignIn, TooManyAttemptsError
from rmqha.tools.console.journal import Journal, named
from rmqha.tools.console.reads import queue_of, said
from rmqha.tools.console.source import Source
from rmqha.tools.manage import accounts, dead_letters, group_seek, groups, settings, topics
from rmqha.tools.manage.masters import Outcomes
from rmqha.tools.messages.produce import decorate
from rmqha.tools.terminal import WorkFailedError, counted
from rmqha.tools.view.questions import QuestionError, asked
from rmqha.tools.view.texts import Json

T = TypeVar("T")
Body = Mapping[str, Any]
MAX_QUEUES = 1024
MAX_RESENT = 10_000
MAX_PROPERTIES = 100
MAX_TOLD = 8  # errors of one change in the log
_LAST_MS = 253_402_300_799_999  # 9999-12-31
_PERMISSIONS = {"rw": sys_flags.PERM_READ | sys_flags.PERM_WRITE, "r": sys_flags.PERM_READ, "w": sys_flags.PERM_WRITE}
_DELAY_LEVELS = 18


class Changes:
    """The changes. Each method returns what it did; QuestionError for an invalid or refused request.

    The journal gets a line for each change that was tried; requests that are malformed, and dry runs, change nothing.
    """

    def __init__(self, source: Source, journal: Journal) -> None:
        self._source = source
        self._admin = source.admin
        self._change = journal.change

    # ---- topics

    def create_topic(self, body: Body, person: Person) -> Json:
        """Create a topic on all masters: {"topic", "queues", "perm"}; one that exists is an error."""
        name, queues = text(body, "topic"), whole(body, "queues", 8, 1, MAX_QUEUES)
        wanted = topics.TopicSettings(queues, queues, _perm(body))
        with self._change(person, f"create topic {named(name)} with {counted(queues or 0, 'queue')}"):
            try:
                made = topics.create_topic(self._admin, self._source.masters(), name, wanted)
            except topics.TopicExistsError as error:
                raise WorkFailedError(error.message) from None  # a conflict
            return self._done(f"topic {name} created with {counted(queues or 0, 'queue')}", made.outcomes,
                              brokers=names(made.brokers))

    def alter_topic(self, name: str, body: Body, person: Person) -> Json:
        """Change some settings of a topic on all masters: {"queues", or "read_queues", "write_queues"; "perm"}."""
        queues, read_queues, write_queues = (whole(body, key, None, 1, MAX_QUEUES) for key in (
            "queues", "read_queues", "write_queues"))
        if queues is not None and (read_queues is not None or write_queues is not None):
            raise QuestionError("queues sets the read queues and the write queues: give it alone")
        wanted = topics.TopicSettings(read_queues or queues, write_queues or queues,
                                      _perm(body) if body.get("perm") else None)
        given = ", ".join(f"{key}={body[key]}" for key in ("queues", "read_queues", "write_queues", "perm")
                          if body.get(key))
        with self._change(person, f"alter topic {named(name)}: {given or 'no setting'}") as outcome:
            done = topics.alter_topic(self._admin, self._source.masters(), name, wanted)
            changed = [broker for broker, change in done.outcomes.values.items() if change.is_one]
            if not changed and not done.outcomes.errors and done.order is None:
                return self._unchanged(outcome, f"topic {name} has these settings already")
            return self._done(f"topic {name} changed on {counted(len(changed), 'broker')}", done.outcomes)

    def delete_topic(self, name: str, _body: Body, person: Person) -> Json:
        """Delete a topic on all masters and at the name servers."""
        with self._change(person, f"delete topic {named(name)}"):
            done = topics.delete_topic(self._admin, self._source.masters(), name)
            if done.name_servers:
                raise QuestionError("; ".join(error.message for error in done.name_servers.values()))
            return self._done(f"topic {name} deleted", done.outcomes)

    def publish(self, name: str, body: Body, person: Person) -> Json:
        """Send one message: {"body", "encoding": "text" or "base64", "tags", "keys", "properties", "delay_level",
        "queue": "broker-a:0" or null}."""
        message = message_of(name, body)
        queue = MessageQueue(name, *queue_of(text(body, "queue"))) if body.get("queue") else None
        with self._change(person, f"publish to {named(name)}") as outcome:
            refusal = person.refusal_to_send(name)
            if refusal is not None:
                raise QuestionError(refusal)
            sent = asked(lambda: self._source.producer.send(message, queue=queue))
            outcome.append(f"{sent.send_status.name} {sent.offset_msg_id}")
        self._source.questions.answers.forget()
        place = sent.message_queue
        return {"id": sent.offset_msg_id, "unique_id": sent.msg_id, "status": sent.send_status.name,
                "broker": place.brokerName, "queue_id": place.queueId, "queue_offset": sent.queue_offset}

    # ---- groups

    def seek(self, group: str, body: Body, person: Person) -> Json:
        """Move a group in a topic, or with "dry_run" show what that would do: {"topic", "to": "earliest", "latest", a
        time in ms, or {"offset", "queue"}, "dry_run"}."""
        topic, is_dry = text(body, "topic"), body.get("dry_run") is not False
        target, only = _target(body.get("to"))
        if is_dry:
            return self._planned(self._plan(group, topic, target, only), True)[0]
        to = f"offset {target.offset} of {named(body['to']['queue'])}" if only else str(body["to"])
        with self._change(person, f"move group {named(group)} in topic {named(topic)} to {to}") as outcome:
            plan = self._plan(group, topic, target, only)
            answer, rows = self._planned(plan, False)
            result = group_seek.seek(self._admin, plan)
            for row, moved in zip(rows, result.moved):
                row.update(target=moved.target, seen=moved.seen, error=moved.error)
            failed = [f"{row['broker']}:{row['queue_id']}: {row['error']}" for row in rows if row["error"]]
            outcome += [f"moved {len(rows) - len(failed)} of {counted(len(rows), 'queue')}", *failed[:MAX_TOLD]]
            notes = [f"{broker.name} is still paused: {error.message}; resume the group on its tab Settings"
                     for broker, error in result.still_paused.items()]
            outcome += notes
            answer["notes"] += notes
            return {**answer, **self._done(f"offsets of {group} in {topic} moved", Outcomes())}

    def _plan(self, group: str, topic: str, target: group_seek.SeekTarget,
              only: Sequence[tuple[str, int]]) -> group_seek.SeekPlan:
        return group_seek.plan_seek(self._admin, self._source.masters(), group, [topic], target, only)

    @staticmethod
    def _planned(plan: group_seek.SeekPlan, is_dry: bool) -> tuple[Json, list[Json]]:
        """Return the answer about a plan, and the rows in it."""
        rows: list[Json] = [
            {"topic": move.topic, "broker": move.broker.name, "queue_id": move.queue_id, "min": move.first,
             "max": move.end, "committed": move.committed, "target": move.target, "change": move.change,
             "error": ""} for move in plan.moves]
        answer: Json = {"plan": rows, "dry_run": is_dry, "online": plan.is_online, "notes": said(plan.asked.errors)}
        if plan.needs_pause:
            answer["notes"].append("The group is paused while its clients go back.")
        return answer, rows

    def pause(self, group: str, is_paused: bool, person: Person) -> Json:
        """Pause or resume a group on all masters."""
        with self._change(person, f"{'pause' if is_paused else 'resume'} group {named(group)}") as outcome:
            done = groups.set_consuming(self._admin, self._source.masters(), group, not is_paused)
            if not done.errors and not any(change.changed for change in done.values.values()):
                state = "is paused already" if is_paused else "is not paused"
                return self._unchanged(outcome, f"group {group} {state}")
            return self._done(f"group {group} {'paused' if is_paused else 'resumed'}", done)

    def delete_group(self, group: str, _body: Body, person: Person) -> Json:
        """Delete a group without clients, and its offsets, on all masters."""
        with self._change(person, f"delete group {named(group)}"):
            return self._done(f"group {group} deleted", groups.delete_group(
                self._admin, self._source.masters(), group, offsets=True))

    def resend(self, group: str, body: Body, person: Person) -> Json:
        """Send dead letters again: {"new": true}, {"all": true} or {"ids": [...]}, {"to": a topic or null, "dry_run"}.

        `new` are those that neither `all` nor `new` has sent before.
        """
        wanted, to = _Letters.of(body), body.get("to")
        if not isinstance(to, (str, type(None))):
            raise QuestionError("to must be a topic or null")
        if body.get("dry_run") is True:
            return wanted.plan(dead_letters.Reading(self._admin, self._source.masters(), group))
        where = f"topic {named(to)}" if to else "its retry topic"
        with self._change(person, f"send {wanted.word} of {named(group)} again to {where}") as outcome:
            reading = dead_letters.Reading(self._admin, self._source.masters(), group)
            return self._resend(reading, wanted, to or None, outcome)

    def _resend(self, reading: dead_letters.Reading, wanted: "_Letters", to: str | None, outcome: list[str]) -> Json:
        resender = dead_letters.Resender(self._admin, reading, to)
        found, unknown = wanted.read(reading)
        failures: list[Json] = [{"id": each, "status": None, "error": "no such dead letter"} for each in unknown]
        sent, failed = 0, len(unknown)

        def report(resent: dead_letters.Resent) -> None:
            nonlocal sent, failed
            sent += resent.is_ok
            failed += not resent.is_ok
            if not resent.is_ok and len(failures) < MAX_RESENT:
                failures.append({"id": resent.letter.dead_letter_id, "error": resent.error,
                                 "status": resent.status.name if resent.status else None})
        marks = dead_letters.Marks(self._admin, reading) if wanted.ids is None else None
        try:
            dead_letters.resend(resender, found, marks, report)
        finally:
            outcome.append(f"{sent} sent, {failed} failed")
            errors = said({**reading.errors, **(marks.errors if marks is not None else {})})
            outcome += errors
        return {**self._done(f"{counted(sent, 'dead letter')} of {reading.group} sent again", Outcomes()),
                "results": failures, "sent": sent, "failed": failed, "errors": errors}

    # ---- brokers

    def write_permission(self, broker: str, body: Body, person: Person) -> Json:
        """Remove or restore the write permission of a broker name at each name server: {"allow": true or false}."""
        allow = body.get("allow")
        if not isinstance(allow, bool):
            raise QuestionError("allow must be true or false")
        if broker not in {each.name for each in self._source.picture().snapshot.brokers}:
            raise QuestionError(f"unknown broker {broker!r}", not_there=True)
        change = self._admin.add_write_perm_of_broker if allow else self._admin.wipe_write_perm_of_broker
        with self._change(person, f"{'restore' if allow else 'remove'} the write permission of {named(broker)}"):
            changed = [self._admin.asked(f"name server {address}", change, address, broker)
                       for address in self._admin.api.get_name_server_address_list()]
            return self._done(f"write permission of {broker}: {'yes' if allow else 'no'}", Outcomes(),
                              topics=max(changed, default=0))

    def config(self, name: str, body: Body, person: Person) -> Json:
        """Change a setting of the brokers with a name while they run: {"key", "value", "dry_run"}."""
        wanted = settings.wanted_values([f"{text(body, 'key')}={text(body, 'value', True)}"])
        if body.get("dry_run") is True:
            found = settings.read_settings(self._admin, self._source.brokers(name))
            return {"results": [_change_json(each, each.problem) for each in settings.plan(found.needed(), wanted)]}
        what = ", ".join(f"{key}={named(value)}" for key, value in wanted.items())
        with self._change(person, f"set {what} at {named(name)}") as outcome:
            rows = self._set(name, wanted)
            outcome += [f"{row['address']}: {row['error'] or 'done'}" for row in rows]
            return {"results": rows}

    def _set(self, name: str, wanted: Mapping[str, str]) -> list[Json]:
        found = settings.read_settings(self._admin, self._source.brokers(name))
        done = settings.change_settings(self._admin, settings.plan(found.needed(), wanted))
        errors = {**found.errors, **done.errors}
        rows = [_change_json(each.change, "" if each.is_saved is not False else f"not saved: {each.why}")
                for changed in done.values.values() for each in changed]
        rows += [{"address": broker.address, "key": None, "before": None, "after": None, "error": error.message}
                 for broker, error in errors.items()]
        return rows

    # ---- accounts

    def create_account(self, body: Body, person: Person) -> Json:
        """Create an account on all brokers: {"access_key", "secret_key", "default_topic_perm", "default_group_perm",
        "topic_perms": ["orders=PUB"], "group_perms"}."""
        key, secret = text(body, "access_key"), Secret(text(body, "secret_key"))
        account = accounts.Account(key, False, "", _default(body, "default_topic_perm"),
                                   _default(body, "default_group_perm"), _entries(body, "topic_perms"),
                                   _entries(body, "group_perms"))
        with self._change(person, f"create account {named(key)}"):
            answers = accounts.read_accounts(self._admin, self._source.brokers()).needed()
            if all(key in each.accounts for each in answers.values()):  # else those without it get it
                raise WorkFailedError(f"the account {key} exists already: change it with `rmqha acl user alter`")
            return self._done(f"account {key} created", accounts.create_account(self._admin, answers, account, secret))

    def delete_account(self, key: str, _body: Body, person: Person) -> Json:
        """Delete an account on all brokers."""
        with self._change(person, f"delete account {named(key)}"):
            answers = accounts.read_accounts(self._admin, self._source.brokers()).needed()
            return self._done(f"account {key} deleted", accounts.delete_account(self._admin, answers, key))

    @staticmethod
    def _unchanged(outcome: list[str], why: str) -> Json:
        outcome.append("nothing changed")
        return {"done": f"nothing changed: {why}"}

    def _done(self, what: str, outcomes: Outcomes[Any], **more: object) -> Json:
        """Return what was done; QuestionError, with what was done nevertheless, when a broker failed."""
        self._source.questions.answers.forget()
        if outcomes.errors:
            done = f"done on {', '.join(names(outcomes.values))}; " if outcomes.values else ""
            raise QuestionError(f"{done}failed on {'; '.join(said(outcomes.errors))}")
        return {"done": what, **more}


def sign_in(sign_ins: SignIn | None, body: Body, address: str, journal: Journal) -> tuple[int, Json]:
    """Return the status and the answer to {"access_key", "secret_key"}."""
    if sign_ins is None:
        return 400, {"error": "this console has no accounts: start it with --accounts"}
    key, secret = text(body, "access_key"), text(body, "secret_key")
    try:
        opened = sign_ins.open(key, secret)
    except TooManyAttemptsError as error:
        journal.refused(f"sign-in refused: {error}", address)
        return 429, {"error": str(error)}
    if opened is None:
        journal.refused_sign_in(key if sign_ins.knows(key) else None, address)
        return 401, {"error": "the access key or the secret key is wrong"}
    token, person = opened
    journal.signed_in(replace(person, address=address))
    return 200, {"token": token, "role": person.role.word, "user": person.name}


# ---- parts of requests


class _Letters:
    """The dead letters of a request: those with `ids`, or with None all from `start` on."""

    def __init__(self, word: str, ids: Sequence[str] | None, start: dead_letters.Start) -> None:
        self.word = word
        self.ids = ids
        self._start = start

    @classmethod
    def of(cls, body: Body) -> "_Letters":
        """Return the dead letters that a request chooses. QuestionError unless it chooses in one way."""
        ids, ways = body.get("ids"), [way for way in ("new", "all") if body.get(way) is True]
        if not ways and isinstance(ids, list) and 0 < len(ids) <= MAX_RESENT and all(
                isinstance(each, str) for each in ids):
            return cls(counted(len(ids), "chosen dead letter"), ids, dead_letters.Start())
        if len(ways) != 1 or ids is not None:
            raise QuestionError(f"ids must be a list of 1 to {MAX_RESENT} message ids, or one of new and all must be "
                                "true")
        return cls(f"{ways[0]} dead letters", None, dead_letters.Start(is_new=ways[0] == "new"))

    def read(self, reading: dead_letters.Reading) -> tuple[Iterable[dead_letters.DeadLetter], list[str]]:
        """Return the dead letters, and the ids that none has."""
        letters = reading.letters(self._start)
        return (letters, []) if self.ids is None else dead_letters.chosen(letters, self.ids)

    def plan(self, reading: dead_letters.Reading) -> Json:
        """Return how many would be sent, and how many of them `new` and `all` have sent before."""
        if self.ids is None:
            count, new = reading.count(self._start), reading.count(dead_letters.Start(is_new=True))
            return {"count": count, "sent_before": max(0, count - new), "errors": said(reading.errors)}
        found, unknown = self.read(reading)
        marks = {(queue.broker, queue.bounds.queue_id): queue.mark for queue in reading.queues}
        chosen = list(found)
        before = sum(letter.message.queue_offset < marks.get((letter.broker, letter.message.queue_id), 0)
                     for letter in chosen)
        return {"count": len(chosen), "sent_before": before, "unknown": unknown, "errors": said(reading.errors)}


def text(body: Body, name: str, may_be_empty: bool = False) -> str:
    """Return a text of a request. QuestionError without it."""
    value = body.get(name)
    if not isinstance(value, str) or not value and not may_be_empty:
        raise QuestionError(f"{name}: a text")
    return value


def whole(body: Body, name: str, default: int | None, least: int, most: int) -> int | None:
    """Return a whole number of a request, or `default`. QuestionError for anything else."""
    value = body.get(name, default)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise QuestionError(f"{name} must be {least} to {most}")
    return value


def _perm(body: Body) -> int:
    perm = _PERMISSIONS.get(body.get("perm") or "rw") if isinstance(body.get("perm"), (str, type(None))) else None
    if perm is None:
        raise QuestionError("perm must be rw, r or w")
    return perm


def _default(body: Body, name: str) -> str:
    return accounts.checked_permission(text(body, name)) if body.get(name) else ""


def _entries(body: Body, name: str) -> tuple[str, ...]:
    return tuple(f"{each}={perm}" for each, perm in accounts.checked_entries(_texts(body, name)).items())


def _texts(body: Body, name: str) -> list[str]:
    value = body.get(name, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise QuestionError(f"{name} must be a list of texts")
    return value


def _target(to: object) -> tuple[group_seek.SeekTarget, Sequence[tuple[str, int]]]:
    if to in (group_seek.EARLIEST, group_seek.LATEST):
        return group_seek.SeekTarget(word=str(to)), ()
    if isinstance(to, int) and not isinstance(to, bool) and 0 <= to <= _LAST_MS:
        return group_seek.SeekTarget(time_ms=to), ()
    if isinstance(to, dict) and isinstance(to.get("queue"), str):
        offset = whole(to, "offset", None, 0, (1 << 63) - 1)
        if offset is not None:
            return group_seek.SeekTarget(offset=offset), [queue_of(to["queue"])]
    raise QuestionError('to must be "earliest", "latest", a time in ms, or {"offset": N, "queue": "broker-a:0"}')


def message_of(topic: str, body: Body) -> Message:
    """Return the message of a request to publish. QuestionError for what a message can't have."""
    content = text(body, "body", True)
    if body.get("encoding", "text") == "base64":
        try:
            data = base64.b64decode("".join(content.split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise QuestionError(f"the body is not Base64: {error}") from None
    else:
        data = content.encode()
    if not data:
        raise QuestionError("the body is empty: RocketMQ sends no message without a body")
    properties = body.get("properties") or {}
    if not isinstance(properties, dict) or len(properties) > MAX_PROPERTIES:
        raise QuestionError(f"properties must be an object with at most {MAX_PROPERTIES} names")
    message = Message(topic, data)
    try:
        decorate(message, str(body.get("keys") or "") or None, str(body.get("tags") or "") or None, properties,
                 whole(body, "delay_level", None, 0, _DELAY_LEVELS))
    except ValueError as error:
        raise QuestionError(str(error)) from None
    return message


def _change_json(change: settings.Change, error: str) -> Json:
    return {"address": change.broker.address, "key": change.key, "before": change.before, "after": change.after,
            "error": error}


def names(brokers: Any) -> list[str]:
    """Return the names of brokers."""
    return [broker.name for broker in brokers if isinstance(broker, Broker)]
