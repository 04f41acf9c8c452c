"""Pages of messages over the queues of two brokers, compared with all messages that are pulled, sorted and filtered."""
import itertools
import random
import zlib
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqha.common import sys_flags
from rmqha.common.compression import get_compressor
from rmqha.common.protocol import message_heads, request_code, response_code
from rmqha.common.sys_flags import CompressionType
from rmqha.common.topics import TopicConfig
from rmqha.common.util_all import current_time_millis
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store import commit_log
from rmqha.tools.admin.cluster_admin import ClusterAdmin
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.view import browse, heads
from rmqha.tools.view.browse import EARLIEST, LATEST, Browser, Cursor, Filters, Query, Row, row_of
from rmqha.tools.view.questions import QuestionError
from tests.broker.processor.test_admin_browse_handlers import FILTERS, pulled
from tests.broker.support import BrokerHarness
from tests.common.protocol.test_message_heads import same_fields
from tests.support import tiers
from tests.support.in_process import running_name_server
from tests.tools.conftest import broker_at

NAMES = ("broker-a", "broker-b")
QUEUES = 3
MIB = 1 << 20
NOISE = random.Random(3).randbytes(MIB)
HTTP_LIKE = b'{"path": "/orders", "status": 200}'
TOPICS = (f"Pages{number}" for number in itertools.count())


@dataclass
class Servers:
    """Two masters, and a client."""

    namesrv: str
    brokers: dict[str, BrokerHarness]
    admin: DefaultMQAdminExt

    def new_topic(self) -> str:
        """Return a topic with three queues on each broker."""
        topic = next(TOPICS)
        for broker in self.brokers.values():
            self.admin.create_and_update_topic_config(broker.address, TopicConfig(topic, QUEUES, QUEUES))
        return topic

    def send(self, topic: str, to: tuple[str, int], body: bytes = b"x", properties: dict[str, str] | None = None,
             **fields: object) -> None:
        """Send one message to a queue."""
        assert self.brokers[to[0]].send(topic, body, to[1], properties, **fields).code == response_code.SUCCESS

    def messages(self, topic: str) -> dict[tuple[int, str, int, int], object]:
        """Return all messages by the sort key of their rows, in this order."""
        found = {(message.store_timestamp, name, message.commit_log_offset, queue_id): message
                 for name, broker in self.brokers.items() for queue_id in range(QUEUES)
                 for message in pulled(broker, topic, queue_id)}
        return dict(sorted(found.items()))

    @contextmanager
    def without_the_request(self, names: tuple[str, ...] = NAMES):
        """Make brokers behave like the original's: they do not know GET_MESSAGE_HEADS. Yield the requests to them."""
        asked: list[int] = []
        with pytest.MonkeyPatch.context() as patched:
            for name in names:
                handlers = self.brokers[name].controller.remoting_server.default_request_processor.processor._handlers

                def unknown(_channel, request):
                    asked.append(request.code)
                    return RemotingCommand.create_response_command(response_code.REQUEST_CODE_NOT_SUPPORTED, "no")
                patched.setitem(handlers, request_code.GET_MESSAGE_HEADS, unknown)
            yield asked


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    with ExitStack() as stack:
        namesrv = stack.enter_context(running_name_server(folder))
        brokers = {name: stack.enter_context(broker_at(
            folder / name, namesrv, brokerName=name, enablePropertyFilter=True, mappedFileSizeCommitLog=16 * MIB,
            maxMessageSize=4 * MIB)) for name in NAMES}
        admin = DefaultMQAdminExt(namesrv, timeout_millis=60_000, requests_only=True)
        stack.callback(admin.shutdown)
        yield Servers(namesrv, brokers, admin)


def all_pages(browser: Browser, query: Query, cursor: Cursor | None = None, most: int = 500):
    """Yield pages until the end. Cursors go through their text."""
    for _ in range(most):
        page = browser.browse(query, cursor)
        yield page
        if page.at_end:
            return
        before, cursor = cursor, Cursor.parse(page.cursor.as_text())
        assert page.rows or page.examined or cursor != before, "a page without progress"
    raise AssertionError(f"more than {most} pages")


def orders(pages) -> list[tuple[int, str, int, int]]:
    return [row.order for page in pages for row in page.rows]


# Drawn messages, in drawn queues.

PLACES = st.tuples(st.sampled_from(NAMES), st.integers(0, QUEUES - 1))
BODIES = st.sampled_from([b"", b"hello world " * 9, NOISE[:300], NOISE[:70_000]])
PROPERTIES = st.dictionaries(st.sampled_from(["KEYS", "TAGS", "color"]), st.sampled_from(["a", "b", "k1 k2", "7"]))
SENDS = st.lists(st.tuples(PLACES, BODIES, PROPERTIES, st.sampled_from([None, CompressionType.ZLIB])), max_size=25)
FALLBACKS = st.sampled_from([(), NAMES, NAMES[:1]])
QUICK = settings(max_examples=tiers.drawn(40), suppress_health_check=[HealthCheck.function_scoped_fixture])


STEPS = st.sampled_from([1, 4, 1000])


def send_all(servers: Servers, topic: str, made, step_ms: int = 1) -> None:
    """Send messages, with store times that are multiples of `step_ms`: several messages have the same one."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(commit_log, "current_time_millis", lambda: current_time_millis() // step_ms * step_ms)
        for to, body, properties, kind in made:
            flag = 0 if kind is None else sys_flags.COMPRESSED_FLAG | kind.compression_flag
            servers.send(topic, to, body if kind is None else get_compressor(kind).compress(body, 5), properties,
                         f=flag)


@QUICK
@given(SENDS, STEPS, st.booleans(), st.integers(1, 12), st.sets(st.sampled_from(list(FILTERS))), FALLBACKS,
       st.sampled_from([0.0, 60.0]), st.sampled_from([1, 2, 10_000]))
def test_pages_are_all_wanted_messages_in_order(servers, made, step_ms, backwards, limit, filters, fallback, work_s,
                                                read_at_once):
    topic = servers.new_topic()
    send_all(servers, topic, made, step_ms)
    wanted = [order for order, message in servers.messages(topic).items()
              if all(FILTERS[name][1](message) for name in filters)]
    query = Query(topic, backwards=backwards, limit=limit,
                  filters=Filters(**{name: FILTERS[name][0] for name in filters}))
    with servers.without_the_request(fallback), pytest.MonkeyPatch.context() as patched:
        # Without time, each page ends as soon as it has come further.
        patched.setattr(browse, "WORK_S", work_s)
        patched.setattr(message_heads, "MAX_READ", read_at_once)
        pages = list(all_pages(Browser(servers.admin), query))
    assert orders(pages) == (wanted[::-1] if backwards else wanted)
    assert all(len(page.rows) <= limit and not page.errors for page in pages)
    if work_s and not filters and not fallback:
        assert len(pages) <= len(wanted) // limit + 1
    assert pages[-1].behind == 0 and bool(pages[-1].notes) is any(to[0] in fallback for to, *_ in made)


@pytest.mark.parametrize("backwards", [False, True])
def test_messages_of_one_ms_are_in_the_order_of_the_log(servers, monkeypatch, backwards):
    topic = servers.new_topic()
    places = [("broker-a", 0), ("broker-a", 0), ("broker-a", 1), ("broker-a", 0), ("broker-a", 2), ("broker-a", 2)]
    send_all(servers, topic, [(to, b"%d" % number, {}, None) for number, to in enumerate(places)], 100_000)
    monkeypatch.setattr(message_heads, "MAX_READ", 1)
    rows = Browser(servers.admin).browse(Query(topic, backwards=backwards)).rows
    assert "".join(row.text for row in rows) == ("543210" if backwards else "012345")


@QUICK
@given(SENDS, st.lists(SENDS, min_size=1, max_size=4), st.booleans(), st.integers(1, 10), FALLBACKS)
def test_pages_are_complete_while_messages_arrive(servers, made, arriving, backwards, limit, fallback):
    topic = servers.new_topic()
    send_all(servers, topic, made)
    before = list(servers.messages(topic))
    query = Query(topic, backwards=backwards, limit=limit)
    waiting, found = list(arriving), []
    with servers.without_the_request(fallback):
        browser, cursor = Browser(servers.admin), None
        while True:
            page = browser.browse(query, cursor)
            found += [row.order for row in page.rows]
            cursor = page.cursor
            if waiting:
                send_all(servers, topic, waiting.pop())
            elif page.at_end:
                break
    if backwards:
        assert found == before[::-1]
        return
    assert sorted(found) == list(servers.messages(topic)), "each message once"
    for name in NAMES:
        for queue_id in range(QUEUES):
            of_queue = [order[2] for order in found if order[1::2] == (name, queue_id)]
            assert of_queue == sorted(of_queue)
    assert found[:len(before)] == before or limit < len(before)


@QUICK
@given(SENDS, STEPS, st.booleans(), st.integers(0, 24), st.integers(-1, 1), st.integers(0, 24), FALLBACKS)
def test_pages_between_two_times(servers, made, step_ms, backwards, first, more, last, fallback):
    topic = servers.new_topic()
    send_all(servers, topic, made, step_ms)
    messages = list(servers.messages(topic))
    if not messages:
        return
    begin_ms, end_ms = (messages[min(each, len(messages) - 1)][0] for each in (first, last))
    begin_ms += more
    query = Query(topic, time_ms=begin_ms, until_ms=end_ms, backwards=backwards, limit=4)
    low, high = (end_ms, begin_ms) if backwards else (begin_ms, end_ms)
    wanted = [order for order in messages if low <= order[0] <= high]
    with servers.without_the_request(fallback):
        assert orders(all_pages(Browser(servers.admin), query)) == (wanted[::-1] if backwards else wanted)


@pytest.mark.parametrize("fallback", [(), NAMES])
def test_pages_of_one_broker_one_queue_and_one_offset(servers, fallback):
    topic = servers.new_topic()
    for number in range(30):
        servers.send(topic, (NAMES[number % 2], number % QUEUES), b"%d" % number)
    browser = Browser(servers.admin)
    messages = servers.messages(topic)
    with servers.without_the_request(fallback):
        for query in (Query(topic, "broker-b"), Query(topic, queue_id=1), Query(topic, "broker-a", 2)):
            wanted = [order for order in messages if query.broker in (None, order[1])
                      and query.queue_id in (None, order[3])]
            assert orders([browser.browse(query)]) == wanted and wanted
        for offset in (0, 3, 4, 99):
            wanted = [order for order, message in messages.items() if message.queue_offset >= offset]
            assert orders(all_pages(browser, Query(topic, offset=offset, limit=3))) == wanted
            wanted = [order for order, message in messages.items() if message.queue_offset <= offset][::-1]
            assert orders(all_pages(browser, Query(topic, offset=offset, limit=3, backwards=True))) == wanted
        for first, last in ((0, 2), (3, 3), (2, 99), (3, 2)):
            for backwards in (False, True):
                query = Query(topic, offset=last if backwards else first, until_offset=first if backwards else last,
                              limit=2, backwards=backwards)
                wanted = [order for order, message in messages.items() if first <= message.queue_offset <= last]
                assert orders(all_pages(browser, query)) == (wanted[::-1] if backwards else wanted)
        assert orders([browser.browse(Query(topic, begin=EARLIEST))]) == list(messages)
        assert orders([browser.browse(Query(topic, begin=LATEST))]) == []
        assert orders([browser.browse(Query(topic, begin=LATEST, backwards=True))]) == list(messages)[::-1]


# Following a topic.


@pytest.mark.parametrize("fallback", [(), NAMES])
def test_tail_shows_only_what_is_new(servers, fallback):
    topic = servers.new_topic()
    for number in range(10):
        servers.send(topic, (NAMES[number % 2], 0), b"old")
    browser, query = Browser(servers.admin), Query(topic, limit=4, filters=Filters(text="new"))
    with servers.without_the_request(fallback):
        page = browser.tail(query)
        assert (page.rows, page.at_end, page.examined, page.behind) == ((), True, 0, 0)
        page = browser.tail(query, page.cursor)
        assert (page.rows, page.at_end, page.examined) == ((), True, 0)
        for number in range(6):
            servers.send(topic, (NAMES[number % 2], number % QUEUES), b"new %d" % number)
        servers.send(topic, ("broker-a", 0), b"other")
        page = browser.tail(query, page.cursor)
        wanted = [order for order, message in servers.messages(topic).items() if message.body.startswith(b"new")]
        assert orders([page]) == wanted[:4] and not page.at_end and 2 <= page.behind <= 3
        page = browser.tail(query, page.cursor)
        assert orders([page]) == wanted[4:] and page.at_end and page.behind == 0


def test_tail_without_news_asks_each_broker_once(servers, monkeypatch):
    topic = servers.new_topic()
    servers.send(topic, ("broker-a", 0))
    browser = Browser(servers.admin)
    page = browser.tail(Query(topic))
    codes = []
    invoke = servers.admin.api.remoting_client.invoke_sync
    monkeypatch.setattr(servers.admin.api.remoting_client, "invoke_sync",
                        lambda addr, request, timeout: codes.append(request.code) or invoke(addr, request, timeout))
    assert browser.tail(Query(topic), page.cursor).rows == ()
    assert codes == [request_code.GET_ROUTEINFO_BY_TOPIC, *[request_code.GET_TOPIC_STATS_INFO] * 2]


def test_queue_that_appears_later_is_followed_from_the_beginning_of_the_tail(servers):
    topic = servers.new_topic()
    servers.send(topic, ("broker-a", 0), b"old")
    browser = Browser(servers.admin)
    cursor = browser.tail(Query(topic)).cursor
    older = replace(cursor, places={place: offset for place, offset in cursor.places.items() if place[0] != "broker-b"})
    for name in NAMES:
        servers.send(topic, (name, 1), b"new")
    assert [row.text for row in browser.tail(Query(topic), older).rows] == ["new", "new"]
    backwards = Query(topic, backwards=True)
    first = browser.browse(backwards).cursor
    newer = replace(first, places={place: offset for place, offset in first.places.items() if place[0] != "broker-b"})
    assert browser.browse(backwards, newer).rows == ()


# Rows.


def the_row(servers: Servers, topic: str, body_bytes: int = 40) -> Row:
    (row,) = Browser(servers.admin).browse(Query(topic, body_bytes=body_bytes)).rows
    return row


def test_row_has_the_fields_of_the_message(servers):
    topic = servers.new_topic()
    servers.send(topic, ("broker-b", 2), HTTP_LIKE, {
        "TAGS": "paid", "KEYS": "k1  k2", "UNIQ_KEY": "7F00", "color": "red"}, h=7, j=3)
    (message,) = servers.messages(topic).values()
    row = the_row(servers, topic)
    assert (row.broker, row.queue_id, row.queue_offset) == ("broker-b", 2, 0)
    assert (row.message_id, row.commit_log_offset, row.size) == (
        message.msg_id, message.commit_log_offset, message.store_size)
    assert (row.unique_id, row.tags, row.keys) == ("7F00", "paid", ("k1", "k2"))
    assert (row.store_ms, row.born_ms) == (message.store_timestamp, message.born_timestamp)
    assert (row.born_host, row.store_host) == tuple(f"{host}:{port}" for host, port in (
        message.born_host, message.store_host))
    assert (row.properties, row.has_all_properties, row.flag, row.reconsume_times) == (message.properties, True, 7, 3)
    assert (row.text, row.hex, row.is_cut, row.body_size) == (HTTP_LIKE.decode(), "", False, len(HTTP_LIKE))
    assert (row.topic, row.real_topic, row.transaction, row.delay_level, row.compression, row.body_error) == (
        topic, "", "", 0, "", "")


@pytest.mark.parametrize(("body", "text", "hex_begin", "is_cut"), [
    (b"", "", "", False), (b"x" * 40, "x" * 40, "", False), (b"x" * 41, "x" * 40, "", True),
    ("ö".encode() * 30, "ö" * 20, "", True), (b"x" + "ö".encode() * 30, "x" + "ö" * 19, "", True),
    (b"\x00\x01", None, "00000000  00 01  ", False), (b"\xff" * 50, None, "00000000  ff ff ", True)])
@pytest.mark.parametrize("kind", [None, *CompressionType])
def test_row_shows_the_beginning_of_the_body(servers, body, text, hex_begin, is_cut, kind):
    topic = servers.new_topic()
    flag = 0 if kind is None else sys_flags.COMPRESSED_FLAG | kind.compression_flag
    servers.send(topic, ("broker-a", 0), body if kind is None else get_compressor(kind).compress(body, 5), f=flag)
    servers.brokers["broker-a"].next_offset(topic)
    row = the_row(servers, topic)
    assert (row.text, row.is_cut, row.body_error) == (text, is_cut, "")
    assert row.hex.startswith(hex_begin) and bool(row.hex) is bool(hex_begin)
    assert row.compression == ("" if kind is None else kind.name.lower())


def test_row_says_why_a_body_is_not_shown(servers):
    topic = servers.new_topic()
    words = random.Random(4)
    large = b" ".join(b"%x" % words.getrandbits(64) for _ in range(20_000))  # its first block has more than 32 KiB
    for body, kind in ((b"not compressed", CompressionType.ZLIB),
                       (get_compressor(CompressionType.ZSTD).compress(large, 5), CompressionType.ZSTD)):
        servers.send(topic, ("broker-a", 0), body, f=sys_flags.COMPRESSED_FLAG | kind.compression_flag)
    servers.send(topic, ("broker-a", 0), b"x", f=sys_flags.COMPRESSED_FLAG | 7 << 8)
    servers.brokers["broker-a"].next_offset(topic)
    rows = Browser(servers.admin).browse(Query(topic)).rows
    assert [(row.text, row.hex) for row in rows] == [(None, "")] * 3
    assert [row.compression for row in rows] == ["zlib", "zstd", "unknown"]
    assert "not a zlib stream" in rows[0].body_error and "without the rest" in rows[1].body_error
    assert Browser(servers.admin).whole(topic, "broker-a", 0, 1).body == large


def test_delayed_message_has_its_level_and_topic(servers):
    topic = servers.new_topic()
    servers.send(topic, ("broker-a", 0), b"later", {"DELAY": "18"})
    servers.brokers["broker-a"].next_offset(topic)
    rows = Browser(servers.admin).browse(Query("SCHEDULE_TOPIC_XXXX", "broker-a", 17, backwards=True, limit=1)).rows
    assert [(row.text, row.delay_level, row.real_topic) for row in rows] == [("later", 18, topic)]


# One message with its body.


@pytest.mark.parametrize("fallback", [(), NAMES])
def test_whole_message(servers, fallback):
    topic = servers.new_topic()
    bodies = [b"small", NOISE, b"z" * (3 * MIB)]
    for number, body in enumerate(bodies):
        flag = sys_flags.COMPRESSED_FLAG | CompressionType.ZLIB.compression_flag if number == 2 else 0
        servers.send(topic, ("broker-b", 1), zlib.compress(body) if flag else body, {"KEYS": "k"}, f=flag)
    messages = list(servers.messages(topic).values())
    with servers.without_the_request(fallback):
        browser = Browser(servers.admin)
        for number, body in enumerate(bodies):
            found = browser.whole(topic, "broker-b", 1, number)
            assert found.body == body and found.properties == messages[number].properties
            assert (found.queue_offset, found.broker_name) == (number, "broker-b")
            assert same_fields(found, messages[number])
        ends = [broker.store.get_max_phy_offset() for broker in servers.brokers.values()]
        for offset in (3, 1 << 40):
            with pytest.raises(QuestionError, match=f"broker-b:1 of topic '{topic}' has no message {offset}") as error:
                browser.whole(topic, "broker-b", 1, offset)
            assert error.value.not_there
        for number in (1, 2):
            with pytest.raises(QuestionError, match=f"message {number} of broker-b:1: .*1000"):
                browser.whole(topic, "broker-b", 1, number, most_bytes=1000)
        for name, queue_id in (("broker-c", 0), ("broker-a", 99)):
            with pytest.raises(QuestionError, match=f"topic '{topic}' has no queue {name}:{queue_id}"):
                browser.whole(topic, name, queue_id, 0)
        # A pull beyond the end would have stored an event.
        assert ends == [broker.store.get_max_phy_offset() for broker in servers.brokers.values()]


# Brokers that send whole messages only.


def test_broker_without_the_request_is_asked_for_it_once_in_ten_minutes(servers, monkeypatch):
    topic = servers.new_topic()
    for name in NAMES:
        servers.send(topic, (name, 0))
    with servers.without_the_request(("broker-b",)) as asked:
        browser = Browser(servers.admin)
        for _ in range(3):
            page = browser.browse(Query(topic))
            assert len(page.rows) == 2
            assert page.notes == ("broker-b: brokers without a request for parts of messages send them whole, so large "
                                  "messages are slow",)
        assert asked == [request_code.GET_MESSAGE_HEADS]
        monkeypatch.setattr(heads.time, "monotonic", lambda now=heads.time.monotonic: now() + 601)
        browser.browse(Query(topic))
        assert len(asked) == 2


@pytest.mark.parametrize("backwards", [False, True])
def test_whole_messages_of_a_page_are_limited(servers, backwards, monkeypatch):
    topic = servers.new_topic()
    for number in range(64):
        servers.send(topic, ("broker-a", 0), b"%d" % number if 24 <= number < 56 else NOISE)
    messages = list(servers.messages(topic))
    monkeypatch.setattr(browse, "MAX_PAGE_BYTES", 3 * MIB)
    monkeypatch.setattr(heads, "MAX_PULLED_BYTES", 2 * MIB)
    with servers.without_the_request():
        pages = list(all_pages(Browser(servers.admin), Query(topic, "broker-a", 0, backwards=backwards)))
    assert orders(pages) == (messages[::-1] if backwards else messages)
    assert len(pages) > 2 and all(page.received_bytes < 3 * MIB + 2 * (2 * MIB + MIB + 1000) for page in pages)


@pytest.mark.parametrize("backwards", [False, True])
def test_messages_that_a_broker_filters_are_found_once(servers, backwards):
    topic = servers.new_topic()
    for number in range(50):
        servers.send(topic, ("broker-a", 0), b"%d" % number, {"TAGS": "ab"[number % 3 == 1]})
    numbers = [number for number in range(50) if number % 3 != 1]
    query = Query(topic, backwards=backwards, limit=7, filters=Filters(tags="a"))
    with servers.without_the_request():
        rows = [row for page in all_pages(Browser(servers.admin), query) for row in page.rows]
    assert [int(row.text) for row in rows] == (numbers[::-1] if backwards else numbers)


def test_expression_needs_property_filters_at_other_brokers(servers):
    topic = servers.new_topic()
    servers.send(topic, ("broker-a", 0), properties={"color": "b"})
    query = Query(topic, filters=Filters(sql="color = 'b'"))
    config = servers.brokers["broker-a"].controller.broker_config
    with servers.without_the_request(), pytest.MonkeyPatch.context() as patched:
        patched.setattr(config, "enablePropertyFilter", False)
        page = Browser(servers.admin).browse(replace(query))
        assert page.errors and "enablePropertyFilter=false. Search by tag, key or text instead" in page.errors[0]
        assert not page.at_end
    assert len(Browser(servers.admin).browse(query).rows) == 1


# Wrong queries, missing brokers, changed queues.


@pytest.mark.parametrize(("change", "reason"), [
    ({"topic": ""}, "topic: a name"), ({"begin": "noon"}, "begin must be earliest or latest"),
    ({"offset": 1, "time_ms": 1}, "only one of"), ({"offset": -1}, "offset is -1, and must be from 0"),
    ({"limit": 0}, "limit is 0, and must be from 1 to 1000"), ({"limit": 1001}, "limit is 1001"),
    ({"queue_id": -1}, "queue is -1"), ({"body_bytes": 1 << 20}, "body bytes is 1048576"),
    ({"filters": Filters(text="")}, "text has 0 characters"),
    ({"filters": Filters(tags="||")}, "tags must be 1 to 100 names"),
    ({"filters": Filters(sql="a >")}, "parse the sql filter failed"),
    ({"topic": "NoTopicAtAll"}, "No topic route info"), ({"broker": "broker-c"}, "has no such queue"),
    ({"queue_id": 3}, "has no such queue")])
def test_wrong_query_is_refused_with_the_reason(servers, change, reason):
    topic = servers.new_topic()
    servers.send(topic, ("broker-a", 0))
    with pytest.raises(QuestionError, match=reason):
        Browser(servers.admin).browse(replace(Query(topic), **change))


@given(st.one_of(st.text(max_size=50), st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(
        st.sampled_from(["backwards", "since", "queues", "broker-a", "0"]), inner, max_size=4))).map(
            lambda content: browse.json.dumps(content))))
def test_cursor_of_a_stranger_is_refused_or_valid(text):
    try:
        cursor = Cursor.parse(text)
    except QuestionError as error:
        assert error.message.startswith("the cursor is not valid: ")
    else:
        assert Cursor.parse(cursor.as_text()) == cursor


def test_cursor_has_limits_and_a_direction(servers):
    with pytest.raises(QuestionError, match="at most 1048576 are allowed"):
        Cursor.parse("[" * (MIB + 1))
    with pytest.raises(QuestionError, match="the cursor is not valid"):
        Cursor.parse("[" * 100_000)
    topic = servers.new_topic()
    with pytest.raises(QuestionError, match="in the other direction"):
        Browser(servers.admin).browse(Query(topic), Cursor(True, 0, {}))
    odd = Cursor(False, 0, {("broker-x", 5): 7, ("broker-a", 0): None})
    assert Browser(servers.admin).browse(Query(topic), odd).cursor.places[("broker-x", 5)] == 7


def test_broker_that_does_not_answer_is_missing_from_the_page(servers, monkeypatch):
    topic = servers.new_topic()
    for number in range(6):
        servers.send(topic, (NAMES[number % 2], 0), b"%d" % number)
    gone = servers.brokers["broker-b"].address
    admin = DefaultMQAdminExt(servers.namesrv, timeout_millis=60_000, requests_only=True)
    invoke = admin.api.remoting_client.invoke_sync

    def refuse(addr, request, timeout):
        return invoke("127.0.0.1:1" if addr in down else addr, request, timeout)
    monkeypatch.setattr(admin.api.remoting_client, "invoke_sync", refuse)
    browser = Browser(admin)
    try:
        down = {gone}
        page = browser.browse(Query(topic))
        assert [row.text for row in page.rows] == ["0", "2", "4"] and not page.at_end
        assert len(page.errors) == 1 and page.errors[0].startswith(f"{gone}: no answer: ")
        following = browser.tail(Query(topic))
        down = set()
        # The next page has what was missing; a tail has nothing of before.
        page = browser.browse(Query(topic), page.cursor)
        assert [row.text for row in page.rows] == ["1", "3", "5"] and page.at_end and not page.errors
        assert browser.tail(Query(topic), following.cursor).rows == ()
        down = {broker.address for broker in servers.brokers.values()}
        with pytest.raises(QuestionError, match="no answer: "):
            browser.browse(Query(topic))
    finally:
        admin.shutdown()


@pytest.mark.parametrize("backwards", [False, True])
def test_broker_that_fails_within_a_page_is_continued_later(servers, monkeypatch, backwards):
    topic = servers.new_topic()
    for number in range(30):
        servers.send(topic, (NAMES[number % 2], 0), b"%d" % number)
    messages = list(servers.messages(topic))
    handlers = servers.brokers["broker-b"].controller.remoting_server.default_request_processor.processor._handlers
    right, calls = handlers[request_code.GET_MESSAGE_HEADS], []

    def sometimes(channel, request):
        calls.append(request)
        if len(calls) % 2 == 0:
            return RemotingCommand.create_response_command(response_code.SYSTEM_BUSY, "busy")
        return right(channel, request)
    monkeypatch.setitem(handlers, request_code.GET_MESSAGE_HEADS, sometimes)
    # A page takes several requests.
    monkeypatch.setattr(message_heads, "MAX_READ", 2)
    pages = list(all_pages(Browser(servers.admin), Query(topic, limit=8, backwards=backwards)))
    assert sorted(orders(pages)) == messages
    assert any(page.errors for page in pages) and not pages[-1].errors
    for name in NAMES:
        of_queue = [order for order in orders(pages) if order[1] == name]
        assert of_queue == sorted(of_queue, reverse=backwards)


def test_malformed_answers_are_errors_of_the_page(servers, monkeypatch):
    topic = servers.new_topic()
    for name in NAMES:
        servers.send(topic, (name, 0), b"x")
    handlers = servers.brokers["broker-a"].controller.remoting_server.default_request_processor.processor._handlers
    right = handlers[request_code.GET_MESSAGE_HEADS]

    def odd(channel, request):
        answer = right(channel, request)
        answer.body += b"x"
        return answer
    monkeypatch.setitem(handlers, request_code.GET_MESSAGE_HEADS, odd)
    page = Browser(servers.admin).browse(Query(topic))
    assert [row.broker for row in page.rows] == ["broker-b"] and not page.at_end
    assert page.errors == (f"broker-a:0: malformed answer: the answer ends within message 1 "
                           f"({servers.brokers['broker-a'].address})",) or "malformed answer" in page.errors[0]


def test_topic_that_was_created_again_is_shown_from_its_beginning(servers):
    topic = servers.new_topic()
    for _ in range(5):
        servers.send(topic, ("broker-a", 0), b"old")
    browser = Browser(servers.admin)
    cursor = browser.browse(Query(topic)).cursor
    servers.admin.delete_topic_in_broker([broker.address for broker in servers.brokers.values()], topic)
    for broker in servers.brokers.values():
        servers.admin.create_and_update_topic_config(broker.address, TopicConfig(topic, QUEUES, QUEUES))
    servers.send(topic, ("broker-a", 0), b"new")
    page = browser.browse(Query(topic), cursor)
    assert [row.text for row in page.rows] == ["new"]
    assert page.notes == ("broker-a:0 ends at offset 1, before 5: the topic may have been deleted and created again. "
                          "It is shown from its first offset, 0",)


def test_browser_works_with_the_admin_client_of_commands(servers):
    topic = servers.new_topic()
    servers.send(topic, ("broker-a", 0), b"seen")
    with ClusterAdmin(servers.namesrv, 60_000) as admin:
        assert [row.text for row in Browser(admin).browse(Query(topic)).rows] == ["seen"]
        header = Query(topic).header(0, 0, 5)
        answer = admin.get_message_heads(servers.brokers["broker-a"].address, header)
        (head,) = answer.heads
        assert row_of("broker-a", 0, head, 256).text == "seen" and answer.body_size > 0
        with servers.without_the_request():
            assert admin.get_message_heads(servers.brokers["broker-a"].address, header) is None
