"""`Api`: the reading part of the console's API, one method per path, from a query to JSON."""
import heapq
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from rmqha import __version__
from rmqha.common import mix_all
from rmqha.common.compression import MissingBody
from rmqha.common.message import message_const
from rmqha.common.message.message import MessageExt
from rmqha.common.topics import SubscriptionGroupConfig
from rmqha.tools.admin.cluster_admin import Broker
from rmqha.tools.config.config_meanings import MEANINGS
from rmqha.tools.console.access import Access, Person
from rmqha.tools.console.source import Source
from rmqha.tools.manage import accounts, groups, settings, topics
from rmqha.tools.manage.access_check import PUB, SUB, Rules, Use, verdict
from rmqha.tools.manage.masters import Outcomes, on_each
from rmqha.tools.terminal import CannotAnswerError, counted
from rmqha.tools.view import texts
from rmqha.tools.view.browse import LATEST, Cursor, Filters, Page
from rmqha.tools.view.browse import Query as Browsing
from rmqha.tools.view.questions import MAX_LISTED_BYTES, QuestionError, message_json, trace_json
from rmqha.tools.view.snapshot import BEHIND, CLUSTER, IN, KINDS, LAG, LOG, OUT, GroupState, Picture
from rmqha.tools.view.texts import Json

# points of a line within a table
SPARK_POINTS = 60
MAX_LISTED = 500
MAX_FOUND = 20
MAX_DOWNLOAD = 64 << 20
_GROUPS_TTL_S, _GROUPS_STALE_S = 5.0, 60.0
_PERMISSIONS = {"PUB": PUB, "SUB": SUB}
_GROUP_FIELDS = {"consume_enable": "consumeEnable", "consume_broadcast_enable": "consumeBroadcastEnable",
                 "consume_from_min_enable": "consumeFromMinEnable", "retry_queues": "retryQueueNums",
                 "retry_max_times": "retryMaxTimes", "which_broker_when_slow": "whichBrokerWhenConsumeSlowly"}
Query = Mapping[str, str]


class Api:
    """The read API of the pages. QuestionError: the request can't be answered, or the object does not exist."""

    def __init__(self, source: Source, access: Access) -> None:
        self._source = source
        self._access = access
        # Monotonic: when the settings of all groups were asked for, for the state of one.
        self._settings_s = -_GROUPS_TTL_S

    def session(self, person: Person | None) -> Json:
        """Return the console's version, who is signed in, and what they may do; needs no sign-in."""
        wanted = self._source.wanted
        ways = [*(["token"] if self._access.needs_sign_in or self._access.role > 1 else []),
                *(["account"] if self._access.sign_in is not None else [])]
        return {"version": __version__, "user": person.name if person else None,
                "role": person.role.word if person else None, "needs_sign_in": self._access.needs_sign_in,
                "ways": ways, "interval_s": self._source.poller.interval_s,
                "namesrv": wanted.namesrv if person else None}

    # ---- the cluster

    def cluster(self) -> Json:
        """Return brokers, replication and totals, each with its latest values."""
        picture = self._source.picture()
        answer = texts.cluster_json(picture)
        answer["error"] = self._source.poller.error
        history = self._source.history
        answer["lines"] = {
            kind: {broker.address: history.values(kind, broker.address, SPARK_POINTS)
                   for broker in picture.snapshot.brokers}
            for kind in (IN, OUT, LOG, LAG)}
        for kind in (IN, OUT, BEHIND):
            answer["lines"].setdefault(kind, {})[CLUSTER] = history.values(kind, CLUSTER, SPARK_POINTS)
        return answer

    def store(self) -> Json:
        """Return each broker's files and disk, from its runtime table."""
        picture = self._source.picture()
        return {"at_ms": picture.snapshot.at_ms,
                "brokers": [texts.broker_json(picture, broker) for broker in picture.snapshot.brokers]}

    def history(self, query: Query) -> Json:
        """Return one series: [ms, value], oldest first; of the last `minutes` if they are given."""
        kind = query.get("kind", "")
        if kind not in KINDS:
            raise QuestionError(f"kind must be one of {', '.join(KINDS)}")
        name = query.get("name", CLUSTER)
        minutes = number(query, "minutes", None, 1, 1440)
        points = self._source.history.line(kind, name) if minutes is None else (
            self._source.history.range(kind, name, minutes * 60_000))
        return {"kind": kind, "name": name, "points": points}

    def search(self, query: Query) -> Json:
        """Return topics, groups and brokers whose names contain a text; those that begin with it first."""
        text = query.get("q", "").strip().lower()
        now = self._source.picture().snapshot
        if not text:
            return {"topics": [], "groups": [], "brokers": []}
        found = {"topics": (row.name for row in self._source.questions.topics(now)),
                 "groups": (group.name for group in now.groups),
                 "brokers": dict.fromkeys(broker.name for broker in now.brokers)}
        return {kind: heapq.nsmallest(MAX_FOUND, (name for name in names if text in name.lower()),
                                      key=lambda name: (not name.lower().startswith(text), name))
                for kind, names in found.items()}

    # ---- groups

    def groups(self, query: Query) -> Json:
        """Return groups whose name or topics contain `q`, those with the most unread messages first."""
        picture, text = self._picture_with_groups(), query.get("q", "").strip().lower()
        found = [group for group in picture.snapshot.groups
                 if text in group.name.lower() or any(text in topic.lower() for topic in group.topics)]
        found.sort(key=lambda group: (-group.behind, group.name))
        rows = [{**group_row(picture, group),
                 "line": self._source.history.values(BEHIND, group.name, SPARK_POINTS)}
                for group in found[part(query)]]
        return {"at_ms": picture.snapshot.at_ms, "errors": list(picture.snapshot.groups_errors), "groups": rows,
                "total": len(found)}

    def group(self, name: str) -> Json:
        """Return a group's queues and clients."""
        picture = self._picture_with_groups()
        group = picture.snapshot.group(name)
        if group is None:
            raise QuestionError(f"group {name!r} has no offsets yet, or does not exist", not_there=True)
        answer = group_row(picture, group)
        answer["places"] = [texts.place_json(place) for place in group.places]
        try:
            answer["clients"], answer["clients_error"] = asdict(self._source.questions.clients(
                picture.snapshot, name)), ""
        except QuestionError as error:
            answer["clients"], answer["clients_error"] = None, error.message
        answer["warnings"] = self._group_warnings(group, answer["clients"])
        answer["state"] = self._group_state(picture, name, answer["clients"])
        return answer

    def _group_state(self, picture: Picture, name: str, clients: Json | None) -> str | None:
        """Return a group's state as in `rmqha group list`; None until the masters have sent all groups' settings.

        The page does not wait for these: with thousands of groups they take a second.
        """
        brokers = [Broker(each.cluster, each.name, each.broker_id, each.address) for each in picture.snapshot.brokers
                   if each.is_master and not each.error]
        answers, now_s = self._source.questions.answers, time.monotonic()
        if not all(answers.has(("group settings", each.address)) for each in brokers):
            if now_s - self._settings_s >= _GROUPS_TTL_S:
                self._settings_s = now_s
                answers.later(lambda: self._group_configs(name, brokers))
            return None
        found = self._group_configs(name, brokers)
        if clients is None or found.errors:
            return None
        return groups.state_of([config for config in found.values.values() if config is not None],
                               bool(clients["clients"]))

    def _picture_with_groups(self) -> Picture:
        picture = self._source.picture()
        return picture if picture.snapshot.groups_known else self._source.picture_with_groups()

    @staticmethod
    def _group_warnings(group: GroupState, clients: Json | None) -> list[str]:
        if clients is None or clients["clients"] or not group.behind:
            return []
        retries = retries_of(group)
        unread = group.behind - retries
        verb, more = "is" if unread == 1 else "are", f", with {retries} more in its retry topic" if retries else ""
        return [f"No client is connected, and {counted(unread, 'message')} {verb} unread{more}."]

    def _group_configs(self, name: str, brokers: Iterable[Broker]) -> Outcomes[SubscriptionGroupConfig | None]:
        admin, answers = self._source.admin, self._source.questions.answers
        return on_each(admin, brokers, lambda broker: answers.get(
            ("group settings", broker.address), _GROUPS_TTL_S, lambda: groups.groups_of(admin, broker),
            _GROUPS_STALE_S).get(name), groups.long_ms(admin))

    def group_settings(self, name: str) -> Json:
        """Return a group's settings on each master, and in which of them the masters differ."""
        found = self._group_configs(name, self._source.masters())
        configs = {broker: config for broker, config in found.needed().items() if config is not None}
        if not configs:
            raise QuestionError(f"unknown group {name!r}", not_there=True)
        differing = groups.differing(configs)
        return {"config": [{"broker": broker.name, **{key: getattr(config, field)
                                                     for key, field in _GROUP_FIELDS.items()}}
                           for broker, config in sorted(configs.items())],
                "differs": [key for key, field in _GROUP_FIELDS.items() if field in differing],
                "errors": said(found.errors)}

    # ---- topics

    def topics(self, query: Query) -> Json:
        """Return topics of a kind (`all` for all) whose names contain `q`, by name, and how many there are of each."""
        listing = self._source.questions.topic_listing(self._source.picture().snapshot)
        text = query.get("q", "").strip().lower()
        found = listing.of_kind(query.get("kind", "all"))
        if text:
            found = [row for row in found if text in row.name.lower()]
        return {"topics": [asdict(row) for row in found[part(query)]], "total": len(found), "kinds": listing.kinds}

    def topic(self, name: str) -> Json:
        """Return a topic's kind and queues, and its groups with their unread messages in it."""
        picture = self._source.picture()
        detail = self._source.questions.topic(name)
        found = []
        for each in detail.groups:
            group = picture.snapshot.group(each)
            places = [place for place in group.places if place.topic == name] if group is not None else []
            found.append({"name": each, "unread": sum(place.behind for place in places) if places else None})
        own = {name for broker in picture.snapshot.brokers for name in (broker.name, broker.cluster)}
        return {"name": detail.name, "kind": topics.topic_kind(name, own),
                "queues": [asdict(queue) for queue in detail.queues], "groups": found}

    def topic_settings(self, name: str) -> Json:
        """Return a topic's settings on each master, and in which of them the masters differ."""
        admin, questions = self._source.admin, self._source.questions
        found = on_each(admin, self._source.masters(), lambda broker: questions.topics_of(broker).get(name),
                        groups.long_ms(admin))
        rows = [{"broker": broker.name, "read_queues": config.read_queues, "write_queues": config.write_queues,
                 "perm": topics.perm_text(config.perm), "order": config.order}
                for broker, config in sorted(found.needed().items()) if config is not None]
        if not rows:
            raise QuestionError(f"unknown topic {name!r}", not_there=True)
        differing = [key for key in ("read_queues", "write_queues", "perm", "order")
                     if len({str(row[key]) for row in rows}) > 1]
        return {"config": rows, "differs": differing, "errors": said(found.errors)}

    # ---- messages

    def browse(self, name: str, query: Query, person: Person) -> Json:
        """Return a page of a topic's messages: heads and the beginnings of bodies. See rmqha.tools.view.browse."""
        self._may_read(name, person)
        return page_json(self._source.browser.browse(browsing(name, query), cursor_of(query)))

    def tail(self, name: str, query: Query, person: Person) -> Json:
        """Return the messages that are new since the cursor; without one none, and the cursor of the ends."""
        self._may_read(name, person)
        return page_json(self._source.browser.tail(browsing(name, query), cursor_of(query)))

    def messages(self, query: Query, person: Person) -> Json:
        """Return messages by topic and key, or by id; if there are several, only the beginnings of their bodies."""
        topic, msg_id, key = (query.get(name, "").strip() for name in ("topic", "id", "key"))
        if msg_id:
            found = self._by_id(query, person)
        elif topic and key:
            self._may_read(topic, person)
            found = self._source.messages.by_key(topic, key)
        else:
            raise QuestionError("give a message id (with the topic, if a producer made the id), or a topic and a key")
        cut = {} if len(found) == 1 else {"max_body_bytes": MAX_LISTED_BYTES}
        return {"messages": [message_json(msg, **cut) for msg in found]}

    def _by_id(self, query: Query, person: Person) -> list[MessageExt]:
        topic, msg_id = query.get("topic", "").strip(), query.get("id", "").strip()
        found = self._source.messages.by_id(self._source.picture().snapshot, topic or None, msg_id)
        for msg in found:
            self._may_read(msg.topic, person)
        return found

    def body(self, query: Query, person: Person) -> tuple[bytes, str]:
        """Return the whole body of a message, decompressed, and its id."""
        found = self._by_id(query, person)
        if not found:
            raise QuestionError(f"message {query.get('id', '')!r} not found", not_there=True)
        body = found[0].body
        if isinstance(body, MissingBody):
            raise QuestionError(body.reason)
        if len(body) > MAX_DOWNLOAD:
            raise QuestionError(f"the body has {len(body)} bytes; at most {MAX_DOWNLOAD} can be downloaded")
        return bytes(body), found[0].msg_id or "message"

    def trace(self, query: Query, person: Person) -> Json:
        """Return a message's trace: the events recorded by its clients, and its state in each group by offset."""
        msg_id, trace_topic = (query.get(name, "").strip() for name in ("id", "trace_topic"))
        if not msg_id:
            raise QuestionError("give a message id")
        found = self._by_id(query, person)
        if not found:
            raise QuestionError(f"message {msg_id!r} not found", not_there=True)
        events, errors = self._source.messages.trace(found[0].msg_id or msg_id, *([trace_topic] if trace_topic else []))
        return {"events": [trace_json(view) for view in events], "errors": errors,
                "tracks": self._source.messages.tracks(found[0])}

    @staticmethod
    def _may_read(topic: str, person: Person) -> None:
        refusal = person.refusal_to_read(topic)
        if refusal is not None:
            raise QuestionError(refusal)

    # ---- dead letters

    def dead_letter_groups(self) -> Json:
        """Return the groups with dead letters, how many, and from when to when."""
        rows, outcomes = self._source.dead_letter_counts()
        return {"groups": [{"group": row.group, "count": row.count, "new": row.new, "oldest_ms": row.oldest_ms,
                            "newest_ms": row.newest_ms, "readable": row.is_readable} for row in rows],
                "errors": said(outcomes.errors)}

    def dead_letters(self, group: str, query: Query, person: Person) -> Json:
        """Return a page of a group's dead letters, newest first, and how many there are; null if that is unknown."""
        topic = mix_all.get_dlq_topic(group)
        answer = self.browse(topic, {**query, "backwards": "1"}, person)
        answer["count"] = answer["new"] = None
        try:
            number, outcomes = self._source.dead_letter_count(group)
            answer["errors"] += said(outcomes.errors)
            answer["count"], answer["new"] = (number.count, number.new) if number is not None else (0, 0)
        except CannotAnswerError as error:
            answer["errors"].append(error.message)
        for row in answer["rows"]:
            row["origin_topic"] = row["properties"].get(message_const.PROPERTY_RETRY_TOPIC)
            row["origin_id"] = row["properties"].get(message_const.PROPERTY_ORIGIN_MESSAGE_ID)
        return answer

    # ---- settings

    def broker_config(self, name: str) -> Json:
        """Return all settings of the brokers with a name, side by side."""
        return self._config(self._source.brokers(name), every=True)

    def config_differences(self) -> Json:
        """Return the settings in which the cluster's brokers differ from each other, or from their files."""
        return self._config(self._source.brokers(), every=False)

    def _config(self, brokers: Iterable[Broker], every: bool) -> Json:
        found = settings.read_settings(self._source.admin, sorted(brokers))
        told = found.needed()
        differing = settings.differences(told)
        marked: dict[str, bool] = {}  # key -> whether it should not differ
        for replica in differing.replicas:
            marked[replica.key] = marked.get(replica.key, False) or not replica.expected
        files: dict[str, dict[str, str | None]] = {}
        for each in differing.files:
            if not each.expected:
                marked[each.key] = True
                files.setdefault(each.key, {})[each.broker.address] = each.in_file
        keys = {settings.file_name(key) for each in told.values() for key in each.values} if every else {
            key for key, is_wrong in marked.items() if is_wrong}
        rows = [{"key": key, "values": {broker.address: each.value(key) for broker, each in told.items()},
                 "files": files.get(key, {}), "differs": marked.get(key, False),
                 "expected": key in marked and not marked[key], "meaning": MEANINGS.get(key, "")}
                for key in sorted(keys)]
        return {"brokers": [{"name": broker.name, "broker_id": broker.broker_id, "address": broker.address}
                            for broker in told],
                "rows": rows, "errors": [*said(found.errors), *(
                    f"{settings.label(broker)}: {why}" for broker, why in differing.unknown.items())]}

    # ---- accounts

    def accounts(self) -> Json:
        """Return all accounts and the brokers' white lists, without a secret."""
        found = accounts.read_accounts(self._source.admin, self._source.brokers())
        told = found.needed()
        rows = [{**asdict(view.first), "missing": [settings.label(broker) for broker in view.missing],
                 "differing": list(view.differing)} for view in accounts.account_views(told)]
        white = dict.fromkeys(address for each in told.values() for address in each.white_addresses)
        unknown = [f"{settings.label(broker)}: {each.unknown}" for broker, each in told.items() if each.unknown]
        return {"accounts": rows, "white_addresses": list(white), "errors": [*said(found.errors), *unknown],
                "enabled": any(each.is_enabled for each in told.values())}

    def check_account(self, query: Query) -> Json:
        """Return whether all brokers allow an account to publish to a topic, to read it, or to consume as a group."""
        account, topic, group = (query.get(name, "").strip() for name in ("account", "topic", "group"))
        perm = _PERMISSIONS.get(query.get("permission", "").upper())
        if not account or perm is None or bool(topic) == bool(group):
            raise QuestionError("give an account, a topic or a group, and the permission PUB or SUB")
        if group and perm == PUB:
            raise QuestionError("sending needs no group: check the topic")
        found = accounts.read_accounts(self._source.admin, self._source.brokers())
        use = Use(perm, topic or None, group or None)
        verdicts = {settings.label(broker): verdict(Rules.of_broker(told), account, use)
                    for broker, told in found.needed().items()}
        worst = min(verdicts.values(), key=lambda each: (False, None, True).index(each.is_allowed))
        return {"allowed": worst.is_allowed, "because": f"{worst.reason}{'; ' if worst.note else ''}{worst.note}",
                "brokers": {where: each.word for where, each in verdicts.items()}}


# ---- groups


def retries_of(group: GroupState) -> int:
    """Return how many messages wait in the group's retry topic."""
    retry = mix_all.get_retry_topic(group.name)
    return sum(place.behind for place in group.places if place.topic == retry)


def group_row(picture: Picture, group: GroupState) -> Json:
    """Return a group as one row; like `rmqha group list`, `unread` is without `retries`. `behind` is their sum."""
    retries = retries_of(group)
    return {**texts.group_json(picture, group), "unread": group.behind - retries, "retries": retries}


# ---- parts of queries


def number(query: Query, name: str, default: int | None, least: int, most: int) -> int | None:
    """Return a whole number of a query, or `default` without it. QuestionError for anything else."""
    text = query.get(name, "").strip()
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 19 or not least <= int(text) <= most:
        raise QuestionError(f"{name} must be a whole number from {least} to {most}")
    return int(text)


def part(query: Query) -> slice:
    """Return the part of a list that `offset` and `limit` name; all of it, up to MAX_LISTED rows, without them."""
    offset = number(query, "offset", 0, 0, 1 << 31) or 0
    return slice(offset, offset + (number(query, "limit", MAX_LISTED, 1, MAX_LISTED) or MAX_LISTED))


def queue_of(text: str) -> tuple[str, int]:
    """Return the broker name and the queue id of "broker-a:0". QuestionError for anything else."""
    broker, _colon, queue_id = text.rpartition(":")
    if not broker or not queue_id.isascii() or not queue_id.isdigit() or len(queue_id) > 9:
        raise QuestionError(f"{text[:100]!r} is not a queue such as broker-a:0")
    return broker, int(queue_id)


def browsing(topic: str, query: Query) -> Browsing:
    """Return the browser's query of a request's one."""
    broker, queue_id = queue_of(query["queue"]) if query.get("queue") else (None, None)
    filters = Filters(*(query.get(name) or None for name in ("tag", "key", "sql", "text")))
    offset, time_ms, until_offset, until_ms = (number(query, name, None, 0, (1 << 63) - 1) for name in (
        "offset", "time", "until_offset", "until"))
    begin, backwards = query.get("begin") or None, query.get("backwards") == "1"
    if until_offset is not None and until_ms is not None:
        raise QuestionError("only one of until and until_offset can be given")
    if backwards and (until_offset is not None or until_ms is not None):
        if begin not in (None, LATEST) or offset is not None or time_ms is not None:
            raise QuestionError("with backwards=1, pages begin at until or until_offset: give no begin, offset or time")
        begin, offset, time_ms, until_offset, until_ms = None, until_offset, until_ms, None, None
    return Browsing(topic, broker, queue_id, begin, offset, time_ms, until_ms, until_offset, backwards, filters,
                    number(query, "limit", 50, 1, 200) or 50)


def cursor_of(query: Query) -> Cursor | None:
    """Return the cursor of a query, if it has one."""
    return Cursor.parse(query["cursor"]) if query.get("cursor") else None


def page_json(page: Page) -> Json:
    """Return a page of messages."""
    answer: dict[str, Any] = {name: getattr(page, name) for name in (
        "at_end", "searched_bytes", "received_bytes", "unreadable", "unsearched", "behind")}
    answer["looked"] = page.examined
    notes = list(page.notes)
    if page.unreadable:
        notes.append(f"{page.unreadable} messages are deleted or damaged.")
    if page.unsearched:
        notes.append(f"{page.unsearched} bodies could not be searched.")
    return {**answer, "rows": [asdict(row) for row in page.rows], "cursor": page.cursor.as_text(),
            "errors": list(page.errors), "notes": notes}


def said(errors: Mapping[Broker, CannotAnswerError]) -> list[str]:
    """Return the errors of brokers as texts."""
    return [f"{broker.name} ({broker.address}): {error.message}" for broker, error in errors.items()]


