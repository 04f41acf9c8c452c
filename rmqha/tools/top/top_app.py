"""The terminal application: tables from ViewPoller's pictures, and from questions asked when a row is opened.

    ViewPoller's thread --latest, History--> the application's loop, twice a second
    the library's worker threads --Questions--> brokers; answers return to the loop
"""
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.markup import escape
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.widgets import DataTable, Footer, Input, Static

from rmqha.common.units import count_text
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.connection import Account
from rmqha.tools.terminal import cell
from rmqha.tools.top import rows
from rmqha.tools.top.rows import Table
from rmqha.tools.view.questions import QuestionError, Questions, ViewPoller
from rmqha.tools.view.snapshot import BEHIND, CLUSTER, IN, OUT, Collector, History, Picture, sparkline

_REFRESH_S = 0.5
_MAX_TROUBLES = 4
_TONES = {"good": "green", "warn": "yellow", "bad": "bold red", "": ""}
_COLOURED = {"state", "behind"}  # columns that show how well it goes
_BARS = {"in": "cyan", "out": "magenta", "backlog": "yellow", "lag trend": "red"}
BROKERS, GROUPS, TOPICS, BROKER_TOPICS, TOPIC, GROUP, CLIENTS = (
    "brokers", "groups", "topics", "broker's topics", "topic", "group", "clients")
_ASKED = (TOPICS, BROKER_TOPICS, TOPIC, CLIENTS)  # views that are asked for, not polled

_OPENS = {BROKERS: "its topics", GROUPS: "its queues", GROUP: "the topic", TOPICS: "its queues",
          BROKER_TOPICS: "its queues"}


@dataclass(frozen=True)
class Place:
    """A view: its kind, and the broker, topic or group that it shows."""

    kind: str
    name: str = ""


class TopApp(App[None]):
    """The application; `poller` is running, `questions` is asked from worker threads."""

    TITLE = "rmqha top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: 2; padding: 0 1; background: $panel; }
    #title { height: 1; padding: 0 1; text-style: bold; }
    #filter { display: none; height: 3; }
    #filter.shown { display: block; }
    DataTable { height: 1fr; }
    #troubles { height: auto; max-height: 5; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[Any]] = [
        Binding("b", "show('brokers')", "brokers"),
        Binding("g", "show('groups')", "groups"),
        Binding("t", "show('topics')", "topics"),
        Binding("enter", "open", "open", priority=False),
        Binding("c", "clients", "clients"),
        Binding("escape", "back", "back"),
        Binding("s", "sort", "sort"),
        Binding("r", "reverse", "reverse"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("p", "pause", "pause"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, poller: ViewPoller, questions: Questions, where: str) -> None:
        super().__init__()
        self._poller = poller
        self._questions = questions
        self._where = where
        self._places = [Place(BROKERS)]
        self._sorting: dict[str, tuple[int, bool]] = {}  # by kind of view: column, backwards
        self._filter = ""
        self._told: dict[Place, Any] = {}  # the last answer for each view that is asked for, or a QuestionError
        self._asking = False
        self._drawn: object = None

    @classmethod
    def on_cluster(cls, namesrv: str, cluster: str | None, broker: str | None, interval_s: float, timeout_s: float,
                   account: Account) -> None:
        """Show a cluster until the user quits."""
        timeout_ms = round(timeout_s * 1000)
        with ExitStack() as stack:
            collector = stack.enter_context(Collector(namesrv, timeout_ms, cluster, broker, account))
            admin = DefaultMQAdminExt(namesrv, account.rpc_hook, timeout_ms, tls=account.tls)
            stack.callback(admin.shutdown)
            poller = ViewPoller(collector, History(), interval_s)
            stack.callback(poller.shutdown)
            poller.start()
            cls(poller, Questions(admin), namesrv).run()

    # ---- what is on the screen

    def compose(self) -> ComposeResult:
        """Yield the widgets from top to bottom."""
        yield Static(id="head")
        yield Static(id="title")
        yield Input(placeholder="filter rows by text; Enter applies it, Escape clears it", id="filter")
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Static(id="troubles")
        yield Footer()

    def on_mount(self) -> None:
        """Start the refresh timer."""
        self.query_one(DataTable).focus()
        self.set_interval(_REFRESH_S, self.refresh_view)
        self.refresh_view()

    @property
    def place(self) -> Place:
        """The current view."""
        return self._places[-1]

    def refresh_view(self) -> None:
        """Show a new picture, and repeat the question of the current view."""
        if not self.is_running:
            return  # the timer may fire while the app shuts down
        picture = self._poller.latest
        self.query_one("#head", Static).update(self._head(picture))
        if picture is None:
            return
        self._ask(picture)
        shown = (id(picture), self.place, self._sorting.get(self.place.kind), self._filter,
                 id(self._told.get(self.place)))
        if shown != self._drawn:
            self._drawn = shown
            self._draw(picture)

    def _head(self, picture: Picture | None) -> Text:
        head = Text()
        head.append("rmqha top ", "bold")
        head.append(f" {self._where}  ")
        if picture is None:
            head.append(self._poller.error or "asking ...", "bold red" if self._poller.error else "")
            return head
        now, values = picture.snapshot, self._poller.history.values
        head.append(time.strftime("%H:%M:%S", time.localtime(now.at_ms / 1000)))
        head.append(f"  every {self._poller.interval_s:g} s")
        if self._poller.paused:
            head.append("  PAUSED", "bold reverse")
        head.append("\n")
        for label, kind, value in (("in", IN, picture.in_msgs), ("out", OUT, picture.out_msgs),
                                   ("behind", BEHIND, float(sum(group.behind for group in now.groups)))):
            head.append(f"{label} ")
            head.append(f"{count_text(value):>6}{'' if kind == BEHIND else '/s'} ", "bold")
            head.append(sparkline(values(kind, CLUSTER, 20), 20), _BARS.get(label, "yellow"))
            head.append("   ")
        return head

    def _draw(self, picture: Picture) -> None:
        table, widget = self._table(picture), self.query_one(DataTable)
        column, backwards = self._sorting.get(self.place.kind, (None, False))
        arranged = table.arranged(column, backwards, self._filter)
        key = self._key_at_cursor()
        widget.clear(columns=True)
        for number, each in enumerate(table.columns):
            mark = "" if number != column else " ▲" if each.right == backwards else " ▼"
            widget.add_column(Text(each.title + mark, justify="right" if each.right else "left"), key=str(number))
        for row in arranged:
            widget.add_row(*(self._cell(each, text, row.tone) for each, text in zip(table.columns, row.cells)),
                           key=row.key)
        keys = [row.key for row in arranged]
        if key in keys:
            widget.move_cursor(row=keys.index(key))
        hint = f"  [dim]Enter: {_OPENS[self.place.kind]}[/]" if self.place.kind in _OPENS and arranged else ""
        kept = f"  [dim]({len(arranged)} of {len(table.rows)} with {escape(repr(self._filter))})[/]"
        self.query_one("#title", Static).update(escape(cell(table.title)) + (kept if self._filter else "") + hint)
        self._draw_troubles(picture)

    def _draw_troubles(self, picture: Picture) -> None:
        found = rows.troubles(picture)
        text = Text("\n").join(Text(f"● {cell(each)}", _TONES[tone]) for tone, each in found[:_MAX_TROUBLES])
        if len(found) > _MAX_TROUBLES:
            text.append(f"\n  and {len(found) - _MAX_TROUBLES} more")
        self.query_one("#troubles", Static).update(text)

    @staticmethod
    def _cell(column: rows.Column, text: str, tone: str) -> Text:
        style = _BARS.get(column.title, "") or (_TONES[tone] if column.title in _COLOURED else "")
        return Text(text, style, justify="right" if column.right else "left", no_wrap=True)

    def _table(self, picture: Picture) -> Table:
        place, values = self.place, self._poller.history.values
        if place.kind == BROKERS:
            return rows.brokers(picture, values)
        if place.kind == GROUPS:
            return rows.groups(picture, values)
        if place.kind == GROUP:
            return rows.group_queues(picture, place.name)
        told = self._told.get(place)
        if told is None:
            return Table(f"{place.kind} {place.name}: asking ...", ())
        if isinstance(told, QuestionError):
            return Table(f"{place.kind} {place.name}: {told.message}", ())
        if place.kind == TOPIC:
            return rows.topic_queues(told, picture.snapshot.at_ms)
        if place.kind == CLIENTS:
            return rows.group_clients(place.name, told)
        return rows.topics(told, f" of {place.name}" if place.name else "")

    # ---- questions

    def _ask(self, picture: Picture) -> None:
        """Ask the question of the current view, unless one is outstanding or the display is paused."""
        if self.place.kind not in _ASKED or self._asking or self._poller.paused and self.place in self._told:
            return
        self._asking = True
        place = self.place
        self.run_worker(lambda: self._ask_on_worker(place, picture), thread=True)

    def _ask_on_worker(self, place: Place, picture: Picture) -> None:
        try:
            told: Any = self._answer(place, picture)
        except QuestionError as error:
            told = error
        self.call_from_thread(self._take, place, told)

    def _answer(self, place: Place, picture: Picture) -> Any:
        if place.kind == TOPIC:
            return self._questions.topic(place.name)
        if place.kind == CLIENTS:
            return self._questions.clients(picture.snapshot, place.name)
        return self._questions.topics(picture.snapshot, place.name or None)

    def _take(self, place: Place, told: Any) -> None:
        self._asking = False
        self._told = {place: told} if place == self.place else {}

    # ---- keys

    def _key_at_cursor(self) -> str | None:
        widget = self.query_one(DataTable)
        if not widget.row_count:
            return None
        key: str | None = widget.coordinate_to_cell_key(widget.cursor_coordinate).row_key.value
        return key

    def _go(self, *places: Place) -> None:
        self._places = [*places]
        self.action_clear_filter()
        self.refresh_view()

    def action_show(self, kind: str) -> None:
        """Show one of the three main views."""
        self._go(Place(kind))

    def on_data_table_row_selected(self, _event: Any) -> None:
        """Handle Enter, or a click on the selected row."""
        self.action_open()

    def action_open(self) -> None:
        """Open the selected row."""
        key = self._key_at_cursor()
        kind = {BROKERS: BROKER_TOPICS, GROUPS: GROUP, TOPICS: TOPIC, BROKER_TOPICS: TOPIC}.get(self.place.kind)
        if self.place.kind == GROUP and key:
            kind, key = TOPIC, key.split(" ")[0]
        if key and kind:
            self._go(*self._places, Place(kind, key))

    def action_clients(self) -> None:
        """Show the clients of the selected or current group."""
        name = self.place.name if self.place.kind == GROUP else (
            self._key_at_cursor() if self.place.kind == GROUPS else None)
        if name:
            self._go(*self._places, Place(CLIENTS, name))

    def action_back(self) -> None:
        """Clear the filter, or go back to the previous view."""
        if self._filter or self.query_one("#filter").has_class("shown"):
            self.action_clear_filter()
            self.refresh_view()
        elif len(self._places) > 1:
            self._go(*self._places[:-1])

    def action_sort(self) -> None:
        """Sort by the next column; after the last one, restore the original order."""
        widget = self.query_one(DataTable)
        column, _backwards = self._sorting.get(self.place.kind, (-1, False))
        if column + 1 < len(widget.columns):
            self._sorting[self.place.kind] = column + 1, False
        else:
            self._sorting.pop(self.place.kind, None)
        self.refresh_view()

    def action_reverse(self) -> None:
        """Reverse the sort order."""
        column, backwards = self._sorting.get(self.place.kind, (0, False))
        self._sorting[self.place.kind] = column, not backwards
        self.refresh_view()

    def on_data_table_header_selected(self, event: Any) -> None:
        """Sort by the clicked column; a second click reverses the order."""
        column, backwards = self._sorting.get(self.place.kind, (-1, False))
        self._sorting[self.place.kind] = event.column_index, column == event.column_index and not backwards
        self.refresh_view()

    def action_filter(self) -> None:
        """Open the filter input."""
        widget = self.query_one("#filter", Input)
        widget.add_class("shown")
        widget.focus()

    def action_clear_filter(self) -> None:
        """Clear the filter and show all rows."""
        self._filter = ""
        widget = self.query_one("#filter", Input)
        widget.value = ""
        widget.remove_class("shown")
        self.query_one(DataTable).focus()

    def on_input_changed(self, event: Any) -> None:
        """Apply the filter as it is typed."""
        self._filter = event.value
        self.refresh_view()

    def on_input_submitted(self, _event: Any) -> None:
        """Keep the filter and return to the table."""
        self.query_one("#filter", Input).remove_class("shown")
        self.query_one(DataTable).focus()

    def action_pause(self) -> None:
        """Pause or resume the display."""
        self._poller.pause(not self._poller.paused)
        self.refresh_view()
