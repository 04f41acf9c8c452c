"""The page of `report` in a real browser: what is drawn, zoom, both themes, and nothing from elsewhere."""
import html
import re

import pytest

from rmqha import __version__
from rmqha.pipeline.jobs.report import Report, render
from tests.support.browser import Browser, needs_browser

HOUR = 3_600_000
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
    """72 slots of an hour, twelve topics."""
    found = Report("/stores/broker-a", BEGIN + 80 * HOUR, {"subscribe": "orders"}, messages=720_000, bytes=900 << 20,
                   begin=BEGIN + 5, end=BEGIN + 72 * HOUR - 1, topicCount=5_012, queueCount=20_000, slotMs=HOUR,
                   slotBegin=BEGIN, heatMs=HOUR)
    busy = [5_000 + 500 * (hour % 24) for hour in range(72)]
    found.slots = {"messages": busy, "bytes": [1300 * count for count in busy],
                   "p50": [2] * 72, "p90": [None if hour == 9 else 9 for hour in range(72)],
                   "p99": [40 if hour != 30 else 70_000 for hour in range(72)], "max": [900] * 72}
    names = ["orders", "mail", EVIL, *(f"topic-{number}" for number in range(9))]
    found.topics = [{"topic": name, "messages": 60_000 >> at, "bytes": 70_000_000 >> at, "queues": 4,
                     "begin": BEGIN + 5, "end": BEGIN + 71 * HOUR,
                     "slots": [(count >> at) // 8 if hour != 2 else 0 for hour, count in enumerate(busy)]}
                    for at, name in enumerate(names)]
    found.latency = {"p50": 2, "p90": 9, "p99": 40, "max": 70_000}
    found.size = {"p50": 1200, "p90": 2400, "p99": 4000, "max": 4_000_000}
    found.latencies = [(-1, 10), (0, 300_000), (1, 300_000), *((power, 1000) for power in range(2, 17))]
    found.sizes = [(power, 1000 * power) for power in range(32, 60)]
    found.groupsKnown, found.groupCount, found.backlogTotal = True, 2, 1234
    found.backlog = [{"topic": "orders", "group": "billing", "messages": 1234, "lost": 4, "since": BEGIN + 70 * HOUR},
                     {"topic": "orders", "group": "stock", "messages": 0, "lost": 0, "since": None}]
    found.writers = [{"host": f"10.0.0.1{n}:10911", "messages": 5, "begin": BEGIN, "end": BEGIN} for n in (1, 2)]
    found.slaves = [{"store": "/stores/broker-a-s", "end": 9, "bytes": 4096, "messages": 3,
                     "since": BEGIN + 72 * HOUR - 60_001}]
    found.keyUses, found.keyCount = 700_000, 690_000
    found.hottest = [{"topic": "orders", "key": END_OF_SCRIPT, "messages": 9_000}]
    return found


def text_of(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page.partition("<main")[2].partition("</main>")[0]).split())


def part(page: str, name: str) -> str:
    return page.partition(f'<section id="{name}"')[2].partition("</section>")[0]


@pytest.fixture
def shown(tmp_path):
    """shown(report, hash, script) -> the page as the browser made it of the report; no complaint was made."""
    browser = Browser(tmp_path / "profile")

    def show(found: Report, state: str = "zone=utc", script: str = "") -> str:
        (tmp_path / "page.html").write_text(render(found).replace("</body>", script + "</body>"), "utf-8")
        made = browser.dom(f"file://{tmp_path}/page.html#{state}")
        assert not browser.complaints, "\n".join(browser.complaints)
        return made
    return show


def test_the_page_asks_nobody_and_holds_any_text():
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
    assert "messages a second" in rate and rate.count("<polyline") == 9 and "5,004 other topics" in rate
    assert "from the client to the store" in latency and ">10 s</text>" in latency and ">1 ms</text>" in latency
    assert latency.count("<polyline") == 5  # p90 has a gap
    assert heat.count('class="cell"') > 12 * 60 and "the 12 busiest of 5,012 topics" in heat and "by hour" in heat
    sizes = part(page, "sizes")
    assert "size of the stored message" in sizes and ">1 KiB</text>" in sizes and ">messages</text>" in sizes
    assert sizes.count('class="bar"') == 28
    assert "<title>Report on /stores/broker-a</title>" in page and "<img" not in page


@needs_browser
def test_tables_say_who_is_behind(shown):
    text = text_of(shown(three_days()))
    for wanted in ("720 k", "900 MiB", "billing orders 1,234 4 2 h 26 Nov 2025 22:00:00", "stored by 2 masters",
                   "/stores/broker-a-s 4 KiB 3 1 min", f"{html.escape(END_OF_SCRIPT)} orders 9,000 1.29 %",
                   "Made 27 Nov 2025 08:00:00 by rmqha", "with subscribe orders", "each CRC was compared",
                   "and 5,000 more topics"):
        assert wanted in text, (wanted, text)


@needs_browser
def test_a_time_is_chosen_with_the_pointer_and_scales_with_buttons(shown):
    page = shown(three_days(), "zone=utc&theme=dark", DRAG)
    chosen = re.search(r'class="range">(\d+ \w+ 2025) ([\d:]+) to (\d+ \w+ 2025) ([\d:]+) \(UTC\)', page)
    assert chosen and chosen.group(1) == chosen.group(3) == "25 Nov 2025", page[:300]
    rate = part(page, "rate")
    assert "bytes of log a second" in rate and ">5 KiB</text>" in rate and ">2 KiB</text>" in rate  # a log scale
    assert part(page, "heat").count('class="cell"') < 12 * 20 and ">06:00</text>" in part(page, "latency")
    rows = part(page, "topics").partition("<tbody>")[2].partition("</tbody>")[0]
    assert rows.count("<tr>") == 1 and ">mail<" in rows
    assert 'data-back="rgb(16, 21, 30)"' in page and 'data-theme="dark"' in page


@needs_browser
def test_little_and_nothing_are_drawn(shown):
    assert "There are no messages." in text_of(shown(Report("/empty", BEGIN)))
    one = Report("/one", BEGIN, messages=1, bytes=100, begin=BEGIN, end=BEGIN, topicCount=1, queueCount=1,
                 slotBegin=BEGIN, heatMs=1000, wrongCrc=1)
    one.slots = {"messages": [1], "bytes": [100], "p50": [None], "p90": [None], "p99": [None], "max": [None]}
    one.topics = [{"topic": "T", "messages": 1, "bytes": 100, "queues": 1, "begin": BEGIN, "end": BEGIN, "slots": [1]}]
    one.latency = one.size = {"p50": None, "p90": None, "p99": None, "max": None}
    one.sizes = [(26, 1)]
    page = shown(one)
    assert part(page, "rate").count("<circle") == 1 and "1 wrong CRCs" in text_of(page)
    assert "No message has a key." in text_of(page) and not part(page, "latency")
