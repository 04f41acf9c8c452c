"""`Changes`: the changing part of the console's API, one method per path. The operations are rmqha.tools.manage's."""
import base64
import binascii
import logging
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from rmqha.common import sys_flags
from rmqha.common.message.message import Message, MessageQueue
from rmqha.common.texts import Secret
from rmqha.tools.admin.cluster_admin import Broker
from rmqha.tools.console.access import Person, SignIn, TooManyAttemptsError
from rmqha.tools.console.reads import queue_of, said
from rmqha.tools.console.source import Source
from rmqha.tools.manage import accounts, dead_letters, group_seek, groups, settings, topics
from rmqha.tools.manage.masters import Outcomes
from rmqha.tools.messages.produce import decorate
from rmqha.tools.view.questions import QuestionError, asked
from rmqha.tools.view.texts import Json

log = logging.getLogger("RocketmqTools")

T = TypeVar("T")
Body = Mapping[str, Any]
MAX_QUEUES = 1024
MAX_RESENT = 10_000
MAX_PROPERTIES = 100
_LAST_MS = 253_402_300_799_999  # 9999-12-31
_PERMISSIONS = {"rw": sys_flags.PERM_READ | sys_flags.PERM_WRITE, "r": sys_flags.PERM_READ, "w": sys_flags.PERM_WRITE}
_DELAY_LEVELS = 18


class Changes:
    """The changes. Each method returns what it did; QuestionError for an invalid or refused request."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._admin = source.admin

    # ---- topics

    def create_topic(self, body: Body, person: Person) -> Json:
        """Create a topic on all masters: {"topic", "queues", "perm"}; one that exists is an error."""
        name, queues = text(body, "topic"), whole(body, "queues", 8, 1, MAX_QUEUES)
        wanted = topics.TopicSettings(queues, queues, _perm(body))
        made = topics.create_topic(self._admin, self._source.masters(), name, wanted)
        return self._done(person, f"topic {name} with {queues} queues", made.outcomes, brokers=names(made.brokers))

    def alter_topic(self, name: str, body: Body, person: Person) -> Json:
        """Change some settings of a topic on all masters: {"read_queues", "write_queues", "perm"}."""
        wanted = topics.TopicSettings(whole(body, "read_queues", None, 1, MAX_QUEUES),
                                      whole(body, "write_queues", None, 1, MAX_QUEUES),
                                      _perm(body) if body.get("perm") else None)
        done = topics.alter_topic(self._admin, self._source.masters(), name, wanted)
        return self._done(person, f"topic {name} changed on {len(done.outcomes.values)} brokers", done.outcomes)

    def delete_topic(self, name: str, _body: Body, person: Person) -> Json:
        """Delete a topic on all masters and at the name servers."""
        done = topics.delete_topic(self._admin, self._source.masters(), name)
        if done.name_servers:
            raise QuestionError("; ".join(error.message for error in done.name_servers.values()))
        return self._done(person, f"topic {name} deleted", done.outcomes)

    def publish(self, name: str, body: Body, person: Person) -> Json:
        """Send one message: {"body", "encoding": "text" or "base64", "tags", "keys", "properties", "delay_level",
        "queue": "broker-a:0" or null}."""
        refusal = person.refusal_to_send(name)
        if refusal is not None:
            raise QuestionError(refusal)
        message = message_of(name, body)
        queue = MessageQueue(name, *queue_of(text(body, "queue"))) if body.get("queue") else None
        sent = asked(lambda: self._source.producer.send(message, queue=queue))
        log.info("console: %s published to %s: %s", person.name, name, sent.offset_msg_id)
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
        plan = group_seek.plan_seek(self._admin, self._source.masters(), group, [topic], target, only)
        rows = [{"topic": move.topic, "broker": move.broker.name, "queue_id": move.queue_id, "min": move.first,
                 "max": move.end, "committed": move.committed, "target": move.target, "change": move.change,
                 "error": ""} for move in plan.moves]
        answer: Json = {"plan": rows, "dry_run": is_dry, "online": plan.is_online, "notes": said(plan.asked.errors)}
        if plan.needs_pause:
            answer["notes"].append("The group is paused while its clients go back.")
        if is_dry:
            return answer
        result = group_seek.seek(self._admin, plan)
        for row, moved in zip(rows, result.moved):
            row.update(target=moved.target, seen=moved.seen, error=moved.error)
        answer["notes"] += [f"{broker.name} is still paused: {error.message}; resume the group on its tab Settings"
                            for broker, error in result.still_paused.items()]
        return {**answer, **self._done(person, f"offsets of {group} in {topic} moved", Outcomes())}

    def pause(self, group: str, is_paused: bool, person: Person) -> Json:
        """Pause or resume a group on all masters."""
        done = groups.set_consuming(self._admin, self._source.masters(), group, not is_paused)
        return self._done(person, f"group {group} {'paused' if is_paused else 'resumed'}", done)

    def delete_group(self, group: str, _body: Body, person: Person) -> Json:
        """Delete a group without clients, and its offsets, on all masters."""
        return self._done(person, f"group {group} deleted", groups.delete_group(
            self._admin, self._source.masters(), group, offsets=True))

    def resend(self, group: str, body: Body, person: Person) -> Json:
        """Send dead letters again: {"ids": [...]} or {"all": true}, {"to": a topic or null, "dry_run"}."""
        ids, everything, to = body.get("ids"), body.get("all") is True, body.get("to")
        if not everything and not (isinstance(ids, list) and 0 < len(ids) <= MAX_RESENT
                                   and all(isinstance(each, str) for each in ids)):
            raise QuestionError(f"ids must be a list of 1 to {MAX_RESENT} message ids, or all must be true")
        if not isinstance(to, (str, type(None))):
            raise QuestionError("to must be a topic or null")
        reading = dead_letters.Reading(self._admin, self._source.masters(), group)
        start = dead_letters.Start()
        if body.get("dry_run") is True:
            return {"count": reading.count(start) if everything else len(ids or ()), "errors": said(reading.errors)}
        found, unknown = ((reading.letters(start), []) if everything
                          else dead_letters.chosen(reading.letters(start), ids or ()))
        outcomes: list[Json] = [{"id": each, "status": None, "error": "no such dead letter"} for each in unknown]
        sent = 0

        def report(resent: dead_letters.Resent) -> None:
            nonlocal sent
            sent += resent.is_ok
            if not resent.is_ok and len(outcomes) < MAX_RESENT:
                outcomes.append({"id": resent.letter.dead_letter_id, "error": resent.error,
                                 "status": resent.status.name if resent.status else None})
        marks = dead_letters.Marks(self._admin, reading) if everything else None
        dead_letters.resend(dead_letters.Resender(self._admin, reading, to or None), found, marks, report)
        return {**self._done(person, f"{sent} dead letters of {group} sent again", Outcomes()), "results": outcomes,
                "sent": sent, "failed": len(outcomes), "errors": said(reading.errors)}

    # ---- brokers

    def write_permission(self, broker: str, body: Body, person: Person) -> Json:
        """Remove or restore the write permission of a broker name at each name server: {"allow": true or false}."""
        allow = body.get("allow")
        if not isinstance(allow, bool):
            raise QuestionError("allow must be true or false")
        if broker not in {each.name for each in self._source.picture().snapshot.brokers}:
            raise QuestionError(f"unknown broker {broker!r}", not_there=True)
        change = self._admin.add_write_perm_of_broker if allow else self._admin.wipe_write_perm_of_broker
        changed = [self._admin.asked(f"name server {address}", change, address, broker)
                   for address in self._admin.api.get_name_server_address_list()]
        return self._done(person, f"write permission of {broker}: {'yes' if allow else 'no'}", Outcomes(),
                          topics=max(changed, default=0))

    def config(self, name: str, body: Body, person: Person) -> Json:
        """Change a setting of the brokers with a name while they run: {"key", "value", "dry_run"}."""
        wanted = settings.wanted_values([f"{text(body, 'key')}={text(body, 'value', True)}"])
        found = settings.read_settings(self._admin, self._source.brokers(name))
        changes = settings.plan(found.needed(), wanted)
        if body.get("dry_run") is True:
            return {"results": [_change_json(each, each.problem) for each in changes]}
        done = settings.change_settings(self._admin, changes)
        errors = {**found.errors, **done.errors}
        rows = [_change_json(each.change, "" if each.is_saved is not False else f"not saved: {each.why}")
                for changed in done.values.values() for each in changed]
        rows += [{"address": broker.address, "key": None, "before": None, "after": None, "error": error.message}
                 for broker, error in errors.items()]
        log.info("console: %s changed %s of %s", person.name, ", ".join(wanted), name)
        return {"results": rows}

    # ---- accounts

    def create_account(self, body: Body, person: Person) -> Json:
        """Create an account on all brokers: {"access_key", "secret_key", "default_topic_perm", "default_group_perm",
        "topic_perms": ["orders=PUB"], "group_perms"}."""
        key, secret = text(body, "access_key"), Secret(text(body, "secret_key"))
        account = accounts.Account(key, False, "", _default(body, "default_topic_perm"),
                                   _default(body, "default_group_perm"), _entries(body, "topic_perms"),
                                   _entries(body, "group_perms"))
        told = accounts.read_accounts(self._admin, self._source.brokers())
        return self._done(person, f"account {key} created", accounts.create_account(
            self._admin, told.needed(), account, secret))

    def delete_account(self, key: str, _body: Body, person: Person) -> Json:
        """Delete an account on all brokers."""
        told = accounts.read_accounts(self._admin, self._source.brokers())
        return self._done(person, f"account {key} deleted", accounts.delete_account(self._admin, told.needed(), key))

    def _done(self, person: Person, what: str, outcomes: Outcomes[Any], **more: object) -> Json:
        """Note and return what was done; QuestionError, with what was done nevertheless, when a broker failed."""
        log.info("console: %s: %s %s", person.name, what, more)
        self._source.questions.answers.forget()
        if outcomes.errors:
            done = f"done on {', '.join(names(outcomes.values))}; " if outcomes.values else ""
            raise QuestionError(f"{done}failed on {'; '.join(said(outcomes.errors))}")
        return {"done": what, **more}


def sign_in(sign_ins: SignIn | None, body: Body) -> tuple[int, Json]:
    """Return the status and the answer to {"access_key", "secret_key"}."""
    if sign_ins is None:
        return 400, {"error": "this console has no accounts: start it with --accounts"}
    try:
        opened = sign_ins.open(text(body, "access_key"), text(body, "secret_key"))
    except TooManyAttemptsError as error:
        return 429, {"error": str(error)}
    if opened is None:
        log.info("console: a failed attempt to sign in")
        return 401, {"error": "the access key or the secret key is wrong"}
    token, person = opened
    log.info("console: %s signed in", person.name)
    return 200, {"token": token, "role": person.role.word, "user": person.name}


# ---- parts of requests


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
