"""The console's reading API: a function for each path, from what is asked to JSON. docs/console.md has the list."""
from collections.abc import Mapping
from dataclasses import asdict

from rmqha import __version__
from rmqha.tools.console.access import Access
from rmqha.tools.console.source import Source
from rmqha.tools.view import as_json
from rmqha.tools.view.as_json import Json
from rmqha.tools.view.history import BEHIND, CLUSTER, IN, KINDS, LAG, LOG, OUT
from rmqha.tools.view.messages import MAX_LISTED_BYTES, message_json, trace_json
from rmqha.tools.view.questions import QuestionError

SPARK_POINTS = 60  # of the lines that stand in tables
Query = Mapping[str, str]


class Api:
    """What the pages ask. QuestionError: it can't be answered, or there is no such thing."""

    def __init__(self, source: Source, access: Access) -> None:
        self._source = source
        self._access = access

    def session(self) -> Json:
        """What this console is and allows; told without a token."""
        wanted = self._source.wanted
        return {"version": __version__, "writes": self._access.writes,
                "token_for_reading": self._access.token_for_reading, "interval_s": self._source.poller.interval_s,
                "namesrv": None if self._access.token_for_reading else wanted.namesrv}

    def cluster(self) -> Json:
        """Brokers, replication and sums, each with its last values."""
        picture = self._source.picture()
        answer = as_json.overview(picture)
        del answer["groups"]
        answer["error"] = self._source.poller.error
        history = self._source.history
        answer["lines"] = {
            kind: {broker.address: history.values(kind, broker.address, SPARK_POINTS)
                   for broker in picture.snapshot.brokers}
            for kind in (IN, OUT, LOG, LAG)}
        for kind in (IN, OUT, BEHIND):
            answer["lines"].setdefault(kind, {})[CLUSTER] = history.values(kind, CLUSTER, SPARK_POINTS)
        return answer

    def groups(self) -> Json:
        """All groups, those furthest behind first."""
        picture = self._source.picture()
        rows = [{**as_json.group_json(picture, group),
                 "line": self._source.history.values(BEHIND, group.name, SPARK_POINTS)}
                for group in picture.snapshot.groups]
        return {"at_ms": picture.snapshot.at_ms, "errors": list(picture.snapshot.groups_errors),
                "groups": sorted(rows, key=lambda row: (-row["behind"], row["name"]))}

    def group(self, name: str) -> Json:
        """A group's queues, clients and backlog over time."""
        picture = self._source.picture()
        group = picture.snapshot.group(name)
        if group is None:
            raise QuestionError(f"no broker knows the group {name!r}", not_there=True)
        answer = as_json.group_json(picture, group)
        answer["places"] = [as_json.place_json(place) for place in group.places]
        answer["history"] = self._source.history.line(BEHIND, name)
        try:
            answer["clients"], answer["clients_error"] = asdict(self._source.questions.clients(
                picture.snapshot, name)), ""
        except QuestionError as error:
            answer["clients"], answer["clients_error"] = None, error.message
        return answer

    def topics(self) -> Json:
        """All topics of the masters that answer."""
        return {"topics": [asdict(row) for row in self._source.questions.topics(self._source.picture().snapshot)]}

    def topic(self, name: str) -> Json:
        """A topic's queues, and its groups with what they are behind in it."""
        picture = self._source.picture()
        detail = self._source.questions.topic(name)
        groups = []
        for each in detail.groups:
            group = picture.snapshot.group(each)
            places = [place for place in group.places if place.topic == name] if group is not None else []
            groups.append({"name": each, "behind": sum(place.behind for place in places) if places else None})
        return {"name": detail.name, "queues": [asdict(queue) for queue in detail.queues], "groups": groups}

    def store(self) -> Json:
        """Each broker's files and disk, as its runtime table tells them."""
        picture = self._source.picture()
        return {"at_ms": picture.snapshot.at_ms,
                "brokers": [as_json.broker_json(picture, broker) for broker in picture.snapshot.brokers]}

    def history(self, query: Query) -> Json:
        """One series: [ms, value] oldest first."""
        kind = query.get("kind", "")
        if kind not in KINDS:
            raise QuestionError(f"kind: one of {', '.join(KINDS)}")
        name = query.get("name", CLUSTER)
        return {"kind": kind, "name": name, "points": self._source.history.line(kind, name)}

    def messages(self, query: Query) -> Json:
        """Messages by topic and key, or by id; of several the bodies' beginnings only."""
        topic, msg_id, key = (query.get(name, "").strip() for name in ("topic", "id", "key"))
        if msg_id:
            found = self._source.messages.by_id(self._source.picture().snapshot, topic or None, msg_id)
        elif topic and key:
            found = self._source.messages.by_key(topic, key)
        else:
            raise QuestionError("give a message's id (and its topic, if it is a producer's id), or topic and key")
        cut = {} if len(found) == 1 else {"max_body_bytes": MAX_LISTED_BYTES}
        return {"messages": [message_json(msg, **cut) for msg in found]}

    def trace(self, query: Query) -> Json:
        """What became of a message: events that its clients have noted, and each group's offset."""
        topic, msg_id, trace_topic = (query.get(name, "").strip() for name in ("topic", "id", "trace_topic"))
        if not msg_id:
            raise QuestionError("give a message's id")
        found = self._source.messages.by_id(self._source.picture().snapshot, topic or None, msg_id)
        if not found:
            raise QuestionError(f"no message {msg_id!r}", not_there=True)
        events, errors = self._source.messages.trace(found[0].msg_id or msg_id, *([trace_topic] if trace_topic else []))
        return {"events": [trace_json(view) for view in events], "errors": errors,
                "tracks": self._source.messages.tracks(found[0])}
