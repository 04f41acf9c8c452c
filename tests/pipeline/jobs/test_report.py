"""The job `report`: its counts, and its page in a real browser."""
import html
import json
import os
import re
from pathlib import Path

import pytest

from rmqha import __version__
from rmqha.common.message import message_layout as layout
from rmqha.pipeline.format_options import PipelineError
from rmqha.pipeline.jobs import report as job
from rmqha.pipeline.jobs.report import Report, heat_slot_for, render, report, slot_for
from tests.support.programs import Browser, needs_browser

# The job `report`: its counts, over logs whose records are made here.

SECOND, HOUR = 1000, 3_600_000
DAY = 24 * HOUR
BEGIN = 1_763_942_400_000  # 2025-11-24 00:00 UTC
CLIENT = layout.host_to_bytes(("10.0.3.7", 40112))


def record(topic: str, queue: int, index: int, offset: int, stored: int, latency: int = 5, key: str = "",
           host: str = "10.0.0.11", body: bytes = b"b" * 100) -> bytes:
    properties = f"KEYS\x01{key}\x02".encode() if key else b""
    broker = layout.host_to_bytes((host, 10911))
    return layout.encode_record(layout.body_crc32(body), queue, 0, index, offset, 0, stored - latency, CLIENT, stored,
                                broker, 0, 0, body, layout.encode_topic(topic), properties)


class Log:
    """A log that grows: `add` gives each record its place and its index."""

    def __init__(self, root: Path) -> None:
        self.root, self.data, self._next = root, b"", dict[tuple[str, int], int]()

    def add(self, topic: str, queue: int, stored: int, **more) -> None:
        index = self._next[topic, queue] = self._next.get((topic, queue), -1) + 1
        self.data += record(topic, queue, index, len(self.data), stored, **more)

    def write(self, offsets: dict | None = None) -> str:
        (self.root / "commitlog").mkdir(parents=True)
        (self.root / "commitlog" / f"{0:020d}").write_bytes(self.data)
        if offsets is not None:
            (self.root / "config").mkdir()
            text = json.dumps({"offsetTable": offsets})
            for queue in range(4):
                text = text.replace(f'"{queue}": ', f"{queue}:")
            (self.root / "config" / "consumerOffset.json").write_text(text)
        return str(self.root)


@pytest.fixture(scope="module")
def two_days(spark, tmp_path_factory):
    """Yield the report on two days: 96 records of `orders`, one every half hour, 40 of `mail` at one time, and one
    of a retry topic."""
    folder = tmp_path_factory.mktemp("report")
    log = Log(folder / "store")
    for number in range(96):
        log.add("orders", number % 2, BEGIN + number * HOUR // 2, latency=400 if number == 50 else 5,
                key=f"o-{number} hot" if number % 8 == 0 else f"o-{number}",
                host="10.0.0.11" if number < 60 else "10.0.0.12")
        if number == 20:
            for _ in range(40):
                log.add("mail", 3, BEGIN + 10 * HOUR + 7, latency=-2, key="hot")
    log.add("%RETRY%billing", 0, BEGIN + 2 * DAY, latency=DAY)
    half = bytearray(log.data)
    broken = half.index(b"o-33")  # its body is before it
    half[broken - 30] ^= 1
    log.data = bytes(half)
    store = log.write({"orders@billing": {"0": 48, "1": 20}, "orders@gone": {"0": 48, "1": 48},
                       "nothing@billing": {"0": 5}})
    slave = Log(folder / "slave")
    slave.data = log.data[:log.data.index(b"o-90") - 150]
    found = report(spark, store, str(folder / "page.html"), {}, slaves=[slave.write()])
    return found, (folder / "page.html").read_text("utf-8")


def test_messages_times_and_damage_are_counted(two_days):
    found, page = two_days
    assert (found.messages, found.topicCount, found.queueCount) == (137, 3, 4)
    assert (found.begin, found.end) == (BEGIN, BEGIN + 2 * DAY)
    assert found.wrongCrc == 1 and found.holes == 0 and found.bornLater == 40
    assert found.slotMs == 10 * 60_000 and found.heatMs == HOUR
    assert sum(found.slots["messages"]) == 137 and found.slots["messages"][61] == 0
    assert sum(found.slots["bytes"]) == found.bytes
    assert "10.0.0.12" in page and '"messages": 137' in page


def test_latency_is_shown_over_time_without_messages_that_were_stored_later(two_days):
    found, _ = two_days
    at = 25 * HOUR // found.slotMs
    assert [found.slots[name][at] for name in ("p50", "p99", "max")] == [400, 400, 400]
    assert found.slots["max"][-1] is None and found.slots["p50"][1] is None  # only a retry; no messages
    assert found.latency["p50"] == 5 and found.latency["max"] == 400
    assert dict(found.latencies)[-1] == 40 and dict(found.latencies)[2] == 95 and dict(found.latencies)[8] == 1
    assert sum(count for _, count in found.sizes) == 137


def test_topics_groups_and_masters_are_listed(two_days):
    found, _ = two_days
    assert [(row["topic"], row["messages"], row["queues"]) for row in found.topics] == [
        ("orders", 96, 2), ("mail", 40, 1), ("%RETRY%billing", 1, 1)]
    assert [sum(row["slots"]) for row in found.topics] == [96, 40, 1]
    assert found.groupsKnown and found.groupCount == 2 and found.backlogTotal == 28
    # Queue 1 has the odd numbers: its index 20 is number 41.
    assert found.backlog == [
        {"topic": "orders", "group": "billing", "messages": 28, "lost": 0, "since": BEGIN + 41 * HOUR // 2},
        {"topic": "orders", "group": "gone", "messages": 0, "lost": 0, "since": None}]
    assert [(row["host"], row["messages"]) for row in found.writers] == [("10.0.0.11:10911", 101),
                                                                        ("10.0.0.12:10911", 36)]


def test_slave_lacks_messages_after_its_end(two_days):
    found, _ = two_days
    slave, = found.slaves
    assert slave["messages"] in (7, 8) and slave["bytes"] > 7 * 200
    assert slave["since"] == BEGIN + (97 - slave["messages"]) * HOUR // 2


def test_only_very_frequent_keys_are_hot(two_days):
    found, _ = two_days
    assert found.keyUses == 96 + 12 + 40 and 90 <= found.keyCount <= 106
    # The 12 uses of another key are not 10 times as many.
    assert found.hottest == [{"topic": "mail", "key": "hot", "messages": 40}]


def test_deleted_messages_and_an_odd_file_of_offsets_are_reported(spark, tmp_path):
    log = Log(tmp_path / "store")
    log._next["T", 0] = 9
    log.add("T", 0, BEGIN)
    store = log.write({"T@g": {"0": 4}})
    found = report(spark, store, str(tmp_path / "page"), {})
    assert found.backlog == [{"topic": "T", "group": "g", "messages": 7, "lost": 6, "since": BEGIN}]
    assert found.slotMs == SECOND and found.slots["messages"] == [1]
    (tmp_path / "store" / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@g":[1]}}')
    with pytest.raises(PipelineError, match=r"consumerOffset.json is not in the format that brokers write"):
        report(spark, store, str(tmp_path / "page"), {})


def test_empty_store_has_a_page(spark, tmp_path):
    store = Log(tmp_path / "store").write({})
    os.truncate(tmp_path / "store" / "commitlog" / f"{0:020d}", 4096)
    found = report(spark, store, str(tmp_path / "page"), {})
    assert found.messages == 0 and found.slots["messages"] == [] and found.topics == [] and found.hottest == []


def test_driver_gets_a_bounded_number_of_topics(spark, tmp_path, monkeypatch):
    for name in ("LISTED_TOPICS", "LISTED_GROUPS"):
        monkeypatch.setattr(job, name, 3)
    log = Log(tmp_path / "store")
    for number in range(50):
        for _ in range(number // 10 + 1):
            log.add(f"T{number:02d}", 0, BEGIN + number)
    store = log.write({f"T{number:02d}@g": {"0": 0} for number in range(50)})
    found = report(spark, store, str(tmp_path / "page"), {})
    assert found.topicCount == 50 and [row["topic"] for row in found.topics] == ["T40", "T41", "T42"]
    assert found.groupCount == 50 and found.backlogTotal == 150 and len(found.backlog) == 3


@pytest.mark.parametrize("length", [0, 1, 999, 61_000, HOUR, 6 * HOUR, 3 * DAY, 30 * DAY, 4000 * DAY, 1 << 45])
def test_slots_are_few_and_columns_are_whole_slots(length):
    for begin in (BEGIN, BEGIN + 12_345_678, 0):
        slot = slot_for(begin, begin + length, job.MOST_SLOTS)
        heat = heat_slot_for(begin, begin + length, slot)
        assert 1 <= (begin + length) // slot - begin // slot + 1 <= job.MOST_SLOTS
        assert heat % slot == 0 and (begin + length) // heat - begin // heat < job.MOST_HEAT_SLOTS
        assert length < 6 * HOUR or heat >= HOUR


# The page of `report` in a real browser: its charts, zoom, both themes, and no requests to other servers.

PAGE_HOUR = 3_600_000
BEGIN = 1_763_942_400_000  # Mon 24 Nov 2025 00:00 UTC
EVIL = "<img src=x onerror=document.title=1>"
END_OF_SCRIPT = "</script><script>document.title=1</script>"
DRAG = """<script>
const chart = document.querySelector("#rate svg"), box = chart.getBoundingClientRect();
for (const [kind, part] of [["pointerdown", 0.4], ["pointermove", 0.5], ["pointermove", 0.6], ["pointerup", 0.6]])
  chart.dispatchEvent(new PointerEvent(kind, { clientX: box.left + part * box.width, clientY: box.top + 50,
    bubbles: true, button: kind === "pointermove" ? -1 : 0 }));
for (const name of ["log", "bytes"])
  [...document.querySelectorAll("#rate .choice button")].find((button) => button.textContent === name).click();
document.querySelector("#topics input").value = "mai";
document.querySelector("#topics input").dispatchEvent(new Event("input"));
document.body.dataset.back = getComputedStyle(document.body).backgroundColor;
</script>"""


def three_days() -> Report:
    """Return a report of 72 slots of an hour, and twelve topics."""
    found = Report("/stores/broker-a", BEGIN + 80 * PAGE_HOUR, {"subscribe": "orders"}, messages=720_000,
                   bytes=900 << 20,
                   begin=BEGIN + 5, end=BEGIN + 72 * PAGE_HOUR - 1, topicCount=5_012, queueCount=20_000,
                   slotMs=PAGE_HOUR,
                   slotBegin=BEGIN, heatMs=PAGE_HOUR)
    busy = [5_000 + 500 * (hour % 24) for hour in range(72)]
    found.slots = {"messages": busy, "bytes": [1300 * count for count in busy],
                   "p50": [2] * 72, "p90": [None if hour == 9 else 9 for hour in range(72)],
                   "p99": [40 if hour != 30 else 70_000 for hour in range(72)], "max": [900] * 72}
    names = ["orders", "mail", EVIL, *(f"topic-{number}" for number in range(9))]
    found.topics = [{"topic": name, "messages": 60_000 >> at, "bytes": 70_000_000 >> at, "queues": 4,
                     "begin": BEGIN + 5, "end": BEGIN + 71 * PAGE_HOUR,
                     "slots": [(count >> at) // 8 if hour != 2 else 0 for hour, count in enumerate(busy)]}
                    for at, name in enumerate(names)]
    found.latency = {"p50": 2, "p90": 9, "p99": 40, "max": 70_000}
    found.size = {"p50": 1200, "p90": 2400, "p99": 4000, "max": 4_000_000}
    found.latencies = [(-1, 10), (0, 300_000), (1, 300_000), *((power, 1000) for power in range(2, 17))]
    found.sizes = [(power, 1000 * power) for power in range(32, 60)]
    found.groupsKnown, found.groupCount, found.backlogTotal = True, 2, 1234
    found.backlog = [{"topic": "orders", "group": "billing", "messages": 1234, "lost": 4,
                      "since": BEGIN + 70 * PAGE_HOUR},
                     {"topic": "orders", "group": "stock", "messages": 0, "lost": 0, "since": None}]
    found.writers = [{"host": f"10.0.0.1{n}:10911", "messages": 5, "begin": BEGIN, "end": BEGIN} for n in (1, 2)]
    found.slaves = [{"store": "/stores/broker-a-s", "end": 9, "bytes": 4096, "messages": 3,
                     "since": BEGIN + 72 * PAGE_HOUR - 60_001}]
    found.keyUses, found.keyCount = 700_000, 690_000
    found.hottest = [{"topic": "orders", "key": END_OF_SCRIPT, "messages": 9_000}]
    return found


def text_of(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page.partition("<main")[2].partition("</main>")[0]).split())


def part(page: str, name: str) -> str:
    return page.partition(f'<section id="{name}"')[2].partition("</section>")[0]


@pytest.fixture
def shown(tmp_path):
    """shown(report, hash, script) -> the page as the browser rendered the report, without errors."""
    browser = Browser(tmp_path / "profile")

    def show(found: Report, state: str = "zone=utc", script: str = "") -> str:
        (tmp_path / "page.html").write_text(render(found).replace("</body>", script + "</body>"), "utf-8")
        made = browser.dom(f"file://{tmp_path}/page.html#{state}")
        assert not browser.complaints, "\n".join(browser.complaints)
        return made
    return show


def test_page_requests_nothing_and_holds_any_text():
    page = render(three_days())
    own = page.partition('id="data"')[0] + page.rpartition("<script>")[2]
    assert "default-src 'none'" in page
    assert not re.search(r"(?:src|href)=|https?://(?!www\.w3\.org/2000/svg)|@import", own)
    assert END_OF_SCRIPT not in page and EVIL not in page and f'"version": "{__version__}"' in page
    assert "Report on /x\\ud800?" not in page and "Report on /x?" in render(Report("/x\udc80"))
    assert "Report on &lt;b&gt;" in render(Report("<b>"))


@needs_browser
def test_charts_have_axes_with_dates_and_units(shown):
    page = shown(three_days())
    rate, latency, heat = (part(page, name) for name in ("rate", "latency", "heat"))
    for chart in (rate, latency, heat):
        assert "time (UTC)" in chart and "25 Nov 2025" in chart and ">12:00</text>" in chart
    assert "messages per second" in rate and rate.count("<polyline") == 9 and "5,004 other topics" in rate
    assert "latency from client to store" in latency and ">10 s</text>" in latency and ">1 ms</text>" in latency
    assert latency.count("<polyline") == 5  # p90 has a gap
    assert heat.count('class="cell"') > 12 * 60 and "the 12 busiest of 5,012 topics" in heat and "by hour" in heat
    sizes = part(page, "sizes")
    assert "size of the stored message" in sizes and ">1 KiB</text>" in sizes and ">messages</text>" in sizes
    assert sizes.count('class="bar"') == 28
    assert "<title>Report on /stores/broker-a</title>" in page and "<img" not in page


@needs_browser
def test_tables_show_which_groups_and_slaves_are_behind(shown):
    text = text_of(shown(three_days()))
    for wanted in ("720 k", "900 MiB", "billing orders 1,234 4 2 h 26 Nov 2025 22:00:00", "stored by 2 masters",
                   "/stores/broker-a-s 4 KiB 3 1 min", f"{html.escape(END_OF_SCRIPT)} orders 9,000 1.29 %",
                   "Made 27 Nov 2025 08:00:00 by rmqha", "with subscribe orders", "every CRC was checked",
                   "and 5,000 more topics"):
        assert wanted in text, (wanted, text)


@needs_browser
def test_time_is_selected_with_the_pointer_and_scales_with_buttons(shown):
    page = shown(three_days(), "zone=utc&theme=dark", DRAG)
    chosen = re.search(r'class="range">(\d+ \w+ 2025) ([\d:]+) to (\d+ \w+ 2025) ([\d:]+) \(UTC\)', page)
    assert chosen and chosen.group(1) == chosen.group(3) == "25 Nov 2025", page[:300]
    rate = part(page, "rate")
    assert "bytes of log per second" in rate and ">5 KiB</text>" in rate and ">2 KiB</text>" in rate  # a log scale
    assert part(page, "heat").count('class="cell"') < 12 * 20 and ">06:00</text>" in part(page, "latency")
    rows = part(page, "topics").partition("<tbody>")[2].partition("</tbody>")[0]
    assert rows.count("<tr>") == 1 and ">mail<" in rows
    assert 'data-back="rgb(16, 21, 30)"' in page and 'data-theme="dark"' in page


@needs_browser
def test_reports_with_few_or_no_messages_are_drawn(shown):
    assert "The log has no messages." in text_of(shown(Report("/empty", BEGIN)))
    one = Report("/one", BEGIN, messages=1, bytes=100, begin=BEGIN, end=BEGIN, topicCount=1, queueCount=1,
                 slotBegin=BEGIN, heatMs=1000, wrongCrc=1)
    one.slots = {"messages": [1], "bytes": [100], "p50": [None], "p90": [None], "p99": [None], "max": [None]}
    one.topics = [{"topic": "T", "messages": 1, "bytes": 100, "queues": 1, "begin": BEGIN, "end": BEGIN, "slots": [1]}]
    one.latency = one.size = {"p50": None, "p90": None, "p99": None, "max": None}
    one.sizes = [(26, 1)]
    page = shown(one)
    assert part(page, "rate").count("<circle") == 1 and "1 wrong CRCs" in text_of(page)
    assert "No message has a key." in text_of(page) and not part(page, "latency")
