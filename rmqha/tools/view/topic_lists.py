"""The topics of a cluster for its viewers: the brokers' tables as they reported them last, and the rows made of them.

    TopicTables.ask --ask_topics, the known state--> broker    a broker of rmqha sends only what has changed since
    TopicLists.listing: tables of some brokers --merge--> TopicListing, kept until a table changes
"""
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.admin.topic_tables import MAX_TOPICS, Settings, ask_topics
from rmqha.tools.manage.topics import RowMaker, TopicRow

_MAX_LISTINGS = 20


@dataclass(frozen=True, eq=False)
class TopicTable:
    """The topics of a broker in one state; a new object for each state."""

    topics: Mapping[str, Settings]
    state: str = ""


@dataclass(frozen=True)
class TopicListing:
    """Rows sorted by name, and how many there are of each kind."""

    rows: Sequence[TopicRow]
    by_kind: Mapping[str, Sequence[TopicRow]]

    @property
    def kinds(self) -> dict[str, int]:
        """The number of rows of each kind."""
        return {kind: len(rows) for kind, rows in self.by_kind.items()}

    def of_kind(self, kind: str) -> Sequence[TopicRow]:
        """Return the rows of a kind; `all` for all."""
        return self.rows if kind == "all" else self.by_kind.get(kind, ())


class TopicTables:
    """Asks brokers for their topics, and keeps each table, so that only changes have to be sent. Thread-safe."""

    def __init__(self, admin: DefaultMQAdminExt, timeout_ms: float) -> None:
        self._admin = admin
        self._timeout_ms = timeout_ms
        self._lock = threading.Lock()
        self._tables: dict[str, TopicTable] = {}  # by address; guarded by _lock

    def ask(self, address: str) -> TopicTable:
        """Return the topics of a broker now. Raises the client's exceptions, and ValueError for a malformed answer."""
        with self._lock:
            known = self._tables.get(address)
        told = ask_topics(self._admin, address, self._timeout_ms, known.state if known is not None else "")
        if told.topics is None or known is not None and told.only_changes and not told.topics:
            assert known is not None  # its state was in the request
            return known
        topics = {**known.topics, **told.topics} if told.only_changes and known is not None else told.topics
        if len(topics) > MAX_TOPICS:
            raise ValueError(f"broker {address} has {len(topics)} topics; at most {MAX_TOPICS} can be shown")
        table = TopicTable(topics, told.state)
        with self._lock:
            self._tables[address] = table
        return table

    def keep(self, addresses: set[str]) -> None:
        """Forget the tables of all other brokers."""
        with self._lock:
            for address in self._tables.keys() - addresses:
                del self._tables[address]


@dataclass
class TopicLists:
    """Makes listings, and keeps the last ones. Thread-safe."""

    _made: dict[tuple[str, ...], tuple[list[tuple[str, TopicTable]], TopicListing]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)  # guards _made

    def listing(self, tables: Sequence[tuple[str, TopicTable]], own: set[str]) -> TopicListing:
        """Return the topics of brokers by their names; `own` as in `RowMaker`."""
        key = (*(name for name, _table in tables), "", *sorted(own))
        with self._lock:
            known = self._made.get(key)
            if known is not None and known[0] == list(tables):
                return known[1]
            listing = _listing(tables, own)
            self._made.pop(key, None)
            self._made[key] = list(tables), listing
            if len(self._made) > _MAX_LISTINGS:
                del self._made[next(iter(self._made))]
        return listing


def _listing(tables: Sequence[tuple[str, TopicTable]], own: set[str]) -> TopicListing:
    maker, named = RowMaker(own), [(name, table.topics) for name, table in tables]
    by_kind: dict[str, list[TopicRow]] = {}
    rows = []
    for topic in sorted(set().union(*(topics for _name, topics in named))):
        row = maker.row(topic, named)
        rows.append(row)
        by_kind.setdefault(row.kind, []).append(row)
    return TopicListing(rows, by_kind)
