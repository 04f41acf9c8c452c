"""The console as its users see it: scenes in a real browser, each on a wide screen and on a phone, light and dark."""
import itertools
import re
import subprocess
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from rmqha import ConsumeFromWhere, ConsumeStatus, Message, Producer, PushConsumer
from tests.acl.support import ACCOUNTS
from tests.broker.support import acl_broker
from tests.support.devtools import DevTools
from tests.support.in_process import running_name_server
from tests.support.programs import needs_browser
from tests.support.tiers import in_all, pick
from tests.support.wait import wait_until
from tests.tools.console.test_browser import TOKEN, start

pytest.importorskip("uvicorn", reason="the extra `console` is not installed")
pytestmark = [in_all, needs_browser]

BIG = 9_007_199_254_740_993  # more than a double can hold
ORDER = '{"id": %d, "lines": [{"sku": "a1", "price": 1.50, "note": null}], "city": "\u6771\u4eac"}' % BIG
EVIL = '<img src=x onerror="document.title=\'pwned\'"><script>alert(1)</script>'
EVERY_LOOK = [(1400, 900, False), (1400, 900, True), (400, 800, False), (400, 800, True)]
WIDE_AND_PHONE = EVERY_LOOK[::3]


@pytest.fixture(scope="module")
def shop(cluster):
    """The cluster with a topic of orders, one group that reads it, and one that has given up its messages."""
    with ExitStack() as stack:
        producer = stack.enter_context(Producer("makers", cluster.namesrv, enable_msg_trace=True))
        for number in range(120):
            tag = "paid" if number % 2 else "open"
            producer.send(Message("orders", ORDER.encode(), tags=tag, keys=f"order-{number}"))
        producer.send(Message("orders", EVIL.encode(), keys="evil"))
        producer.send(Message("orders", bytes(range(256)), keys="binary"))
        producer.send(Message("orders", b"x" * 1_000_000, keys="long"))
        for number in range(5):
            producer.send(Message("payments", b"payment %d" % number, keys=f"payment-{number}"))

        def consumer(group, topic, status):
            made = PushConsumer(group, cluster.namesrv, lambda messages: status, max_reconsume_times=0,
                                consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
            made.subscribe(topic, "*")
            return stack.enter_context(made)
        consumer("shipping", "orders", ConsumeStatus.CONSUME_SUCCESS)
        consumer("billing", "payments", ConsumeStatus.RECONSUME_LATER)
        controller = cluster.master.controller
        assert controller.subscription_group_manager.find_subscription_group_config("asleep")  # creates it
        for queue in range(controller.topic_config_manager.select_topic_config("orders").readQueueNums):
            controller.consumer_offset_manager.commit_offset("the test", "asleep", "orders", queue, 0)
        store = cluster.master.store
        wait_until(lambda: sum(store.get_max_offset_in_queue("%DLQ%billing", queue) for queue in range(1)) == 5,
                   what="dead letters")
        yield cluster


@pytest.fixture(scope="module")
def console(shop):
    process, told = start(shop.namesrv, "--role", "administer")
    try:
        yield re.search(r"http://127\.0\.0\.1:\d+", told).group()
    finally:
        process.terminate()
        assert process.wait(240) == 0


class Stage(DevTools):
    """A browser on a console. Each picture checks that nothing is wider than the window."""

    def __init__(self, folder: Path, address: str, look) -> None:
        super().__init__(folder / "profile", *look)
        self.address, self._pictures = address, folder

    def go(self, path: str, token: bool = True) -> None:
        """Open a page, signed in."""
        self.open(f"{self.address}{path}{f'#token={TOKEN}' if token else ''}")

    def scene(self, name: str, whole: bool = True) -> None:
        """Take a picture of a scene."""
        assert self.overflow() <= 0, f"{name} is {self.overflow()} pixels wider than the window"
        self.picture(self._pictures / f"{name}.png", whole)


@pytest.fixture(scope="module", params=pick(WIDE_AND_PHONE, long=EVERY_LOOK),
                ids=lambda look: f"{look[0]}-{'dark' if look[2] else 'light'}")
def stage(request, console, tmp_path_factory):
    with Stage(tmp_path_factory.mktemp("scenes"), console, request.param) as made:
        yield made
        own = [each for each in made.requests if not each.startswith((console, "blob:", "about:", "data:"))]
        assert not own, own
        # The browser also notes each answer that is an error: the page shows those.
        wrong = [each for each in made.complaints if not each.startswith("Failed to load resource")]
        assert not wrong, wrong


def test_cluster_and_its_charts(stage):
    stage.go("/")
    stage.wait("Brokers up")
    stage.wait("Put p99")
    assert "2 of 2" in stage.text()
    stage.until(lambda: stage.run("return document.querySelectorAll('svg.chart .series-line').length > 0"), "a chart")
    stage.run("const kind = document.querySelector('h2.with-choice select'); kind.value = 'behind';"
              "kind.dispatchEvent(new Event('change'))")
    stage.until(lambda: stage.run("return document.querySelector('svg.chart')?.getAttribute('aria-label')"
                                  ".startsWith('Unread')"), "the chart of unread messages")
    stage.scene("cluster")


def test_topics_are_filtered_and_opened(stage):
    stage.go("/topics")
    stage.wait("orders")
    stage.fill("Filter", "pay")
    stage.until(lambda: "orders" not in stage.text(".card") and "payments" in stage.text(".card"), "the filtered list")
    stage.scene("topics")
    stage.fill("Filter", "nothing-like-it")
    stage.wait("No topic of this kind contains")
    stage.scene("topics-none")
    stage.fill("Filter", "")
    stage.wait("orders")
    stage.click("orders", "main")
    stage.wait("Messages stored")
    assert stage.text(".crumbs").split() == ["Topics", "orders"]
    stage.scene("topic")


def test_messages_are_browsed_and_one_is_opened(stage):
    stage.go("/topics/orders/messages")
    stage.wait("50 messages so far")
    stage.scene("browse", whole=False)
    stage.click("More", "main")
    stage.wait("100 messages so far")
    stage.fill("Key", "order-7")
    stage.click("Show", "main")
    stage.wait("1 message")
    stage.click("Open", "main")
    stage.wait("JSON")
    body = stage.wait(str(BIG), ".json")
    assert "1.50" in body and "\u6771\u4eac" in body
    stage.wait("Trace")
    stage.scene("message-json")
    stage.click("as bytes", "main")
    stage.wait("00000000  7b 22 69 64")


@pytest.mark.parametrize(("label", "value", "wanted"), [
    ("Tag", "paid", "60 messages"), ("Text in the body", "onerror", "1 message"),
    ("Key", "no-such", "No message matches"), ("SQL on properties", "((", "1")])
def test_filters(stage, label, value, wanted):
    stage.go("/topics/orders/messages")
    stage.wait("so far")
    stage.fill(label, value)
    stage.click("Show", "main")
    if label == "SQL on properties":
        assert stage.wait("", "#state.bad") or stage.text("[role=alert]")
        return
    for _ in range(20):
        stage.until(lambda: re.search(r", all|so far|No message matches", stage.text()), "a page")
        if "so far" not in stage.text():
            break
        stage.run("""[...document.querySelectorAll("main button")].find((each) =>
            /More|Continue/.test(each.innerText))?.click()""")
        stage.until(lambda: "Asking" not in stage.text(), "the next page")
    stage.wait(wanted)
    stage.scene(f"filter-{label.split()[0].lower()}", whole=False)


def test_oldest_first_at_an_offset_and_at_a_time(stage):
    stage.go("/topics/orders/messages")
    stage.wait("so far")
    stage.fill("Begin", "earliest")
    stage.click("Show", "main")
    assert "order-0" in stage.wait("so far")
    stage.fill("Begin", "offset")
    stage.fill("Offset", "20")
    stage.click("Show", "main")
    stage.until(lambda: "order-0" not in stage.text() and re.search("so far|, all", stage.text()), "offset 20")
    stage.fill("Begin", "time")
    stage.fill("Time", "2100-01-01T00:00")
    stage.click("Show", "main")
    stage.wait("No message is stored here")
    stage.scene("browse-time")


def test_newest_and_oldest_first_end_at_an_offset_or_a_time(stage):
    stage.go("/topics/orders/messages?queue=broker-a:0")
    stage.wait("messages, all")
    stage.fill("Until", "offset")
    stage.fill("Until offset", "1")
    stage.click("Show", "main")
    first = stage.wait("2 messages, all", "main")
    stage.scene("browse-until", whole=False)
    stage.fill("Begin", "earliest")
    stage.click("Show", "main")
    stage.until(lambda: "2 messages, all" in (now := stage.text()) and now != first, "the oldest first")
    stage.fill("Until", "time")
    stage.fill("Until time", "2001-01-01T00:00")
    stage.click("Show", "main")
    stage.wait("No message is stored here")


def chosen_topic(stage, text: str) -> list[str]:
    """Return the names that the field Topic offers when a text is typed."""
    stage.fill("Topic", text)
    names = "return [...document.querySelectorAll('main datalist option')].map((each) => each.value)"
    return stage.until(lambda: [each for each in stage.run(names) if text in each] or None, "names of topics")


def test_names_of_topics_are_offered(stage):
    stage.go("/messages")
    stage.wait("Look up one message")
    assert "payments" in chosen_topic(stage, "paym")
    stage.go("/groups/asleep/seek")
    assert chosen_topic(stage, "orders") == ["orders"]


NUMBERS = itertools.count()
NO_CLIPBOARD = "Object.defineProperty(navigator, 'clipboard', { value: undefined, configurable: true })"
CLIPBOARD = """Object.defineProperty(navigator, 'clipboard', { configurable: true,
    value: { writeText: async (text) => { window.copied = text; } } })"""


def test_body_is_copied_and_message_is_published_again(stage, shop):
    body, number = "first line\nline 2 of \u6771", next(NUMBERS)
    with Producer("repeaters", shop.namesrv) as producer:
        message = Message("payments", body.encode(), tags="late", keys=[f"twice-{number}", "two"])
        message.put_property("colour", "red=blue")
        producer.send(message)
        producer.send(Message("payments", b"one\r\ntwo", keys=f"lines-{number}"))
    stage.go(f"/messages?topic=payments&key=twice-{number}")
    stage.wait("line 2")
    stage.run(CLIPBOARD)
    stage.click("Copy", "main")
    stage.wait("copied", "main .bodybar")
    assert stage.run("return window.copied") == body
    stage.run(NO_CLIPBOARD)
    stage.click("Copy", "main")
    stage.wait("The body is selected: copy it with Ctrl-C.")
    assert stage.run("return String(getSelection())").strip() == body
    stage.scene("message-copied")
    stage.click("Publish again", "main")
    stage.wait("Publish a message")
    given = """const fields = document.querySelector("main form").elements;
        return ["body", "tags", "keys", "properties", "encoding"].map((each) => fields[each].value)"""
    assert stage.run(given) == [body, "late", f"twice-{number} two", "colour=red=blue", "text"]
    stage.click("Publish", "main form")
    stage.wait("SEND_OK")
    stage.go("/topics/payments/publish")
    stage.wait("Publish a message")
    assert stage.run(given)[0] == ""
    stage.go(f"/messages?topic=payments&key=lines-{number}")
    stage.wait("two")
    stage.click("Publish again", "main")
    stage.wait("Publish a message")
    assert stage.run(given)[0::4] == ["b25lDQp0d28=", "base64"]


def test_body_that_is_hostile_binary_or_long_costs_no_more(stage):
    stage.go("/messages?topic=orders&key=evil")
    stage.wait("onerror=")
    assert "Messages" in stage.run("return document.title")
    stage.scene("message-evil")
    stage.go("/messages?topic=orders&key=binary")
    stage.wait("binary")
    stage.wait("00000000  00 01 02 03")
    stage.wait("Copy and Publish again are not offered for a binary body.")
    stage.scene("message-binary")
    stage.go("/messages?topic=orders&key=long")
    stage.wait("976.6 KiB, the beginning of it")
    stage.wait("Copy and Publish again are not offered for a body of which only the beginning is shown.")
    assert len(stage.text("#body")) <= 64 * 1024
    stage.click("Download", "main")
    stage.until(lambda: any("/api/messages/download?" in each for each in stage.requests), "the download")


def test_live_tail_shows_what_is_published(stage):
    stage.go("/topics/orders/messages?live=1")
    stage.wait("Live: 0 messages")
    stage.run("""await fetch("/api/topics/orders/publish", { method: "POST", body: JSON.stringify({ body: "fresh" }),
      headers: { "Content-Type": "application/json", "X-Rmqha-Console": "1", Authorization: "Bearer %s" } })""" % TOKEN)
    stage.wait("fresh")
    stage.wait("Live: 1 message ")
    stage.scene("tail")


def test_one_is_published(stage):
    stage.go("/topics/payments/publish")
    stage.wait("Publish a message")
    stage.fill("Body", '{"paid": true}')
    stage.fill("Keys", "by-hand")
    stage.fill("Properties, one NAME=VALUE per line", "colour=red")
    stage.scene("publish")
    stage.click("Publish", "main form")
    stage.wait("SEND_OK")
    stage.fill("Properties, one NAME=VALUE per line", "nonsense")
    stage.click("Publish", "main form")
    stage.wait("Not done: property")


def test_publishing_asks_where_messages_have_another_meaning(stage):
    for topic, why in (("%25RETRY%25billing", "This is a retry topic"), ("no-such", "the message may create it")):
        stage.go(f"/topics/{topic}/publish")
        stage.wait("Publish a message")
        stage.fill("Body", "x")
        stage.click("Publish", "main form")
        stage.wait(why, "dialog[open]")
        stage.scene(f"publish-confirm-{topic[-7:]}", whole=False)
        stage.click("Cancel", "dialog[open]")
        stage.wait("Nothing was sent.")


def test_topic_is_made_altered_and_deleted(stage):
    stage.go("/topics")
    stage.wait("Create a topic")
    stage.fill("Topic", "made-here", "main form")
    stage.run("document.querySelector('main input[name=topic]').value = 'made-here'")
    stage.click("Create", "main")
    stage.wait("topic made-here created with 8 queues")
    stage.click("made-here", "main .status")
    stage.wait("Messages stored")
    stage.click("Settings", ".tabs")
    stage.wait("Settings on each broker")
    stage.fill("Permission", "r")
    stage.fill("Queues", "4")
    stage.fill("Read queues", "5")
    stage.click("Change", "main")
    stage.wait("give the queues, or the read and write queues")
    stage.fill("Read queues", "")
    stage.click("Change", "main")
    stage.wait("read and write queues: 4, on all brokers", "dialog[open]")
    stage.click("Change", "dialog[open]")
    stage.wait("topic made-here changed on 1 broker")
    stage.scene("topic-settings")
    stage.click("Delete", "main")
    stage.wait("Delete made-here?", "dialog[open]")
    stage.scene("topic-delete", whole=False)
    # It has no message and no group: the name need not be typed.
    assert not stage.run("return document.querySelector('dialog[open] input')")
    stage.click("Delete", "dialog[open]")
    stage.until(lambda: stage.run("return location.pathname") == "/topics" and stage.text(), "the list of topics")


def test_groups_and_one_with_unread_messages(stage):
    stage.go("/groups")
    stage.wait("asleep")
    stage.scene("groups")
    stage.click("asleep", "main")
    stage.wait("No client is connected, and")
    stage.wait("stopped", ".tiles")
    stage.scene("group")
    stage.go("/groups/shipping")
    stage.wait("subscribes to")
    stage.scene("group-running")


def test_offsets_move_only_after_a_dry_run(stage):
    stage.go("/groups/asleep/seek")
    stage.wait("Nothing moves before you confirm it")
    stage.until(lambda: stage.run("return document.querySelector('main input[name=topic]').value") == "orders",
                "the only topic of the group")
    stage.fill("To", "latest")
    stage.click("Dry run", "main")
    stage.wait("skips")
    stage.scene("seek-dry-run")
    stage.fill("To", "earliest")
    stage.click("Dry run", "main")
    stage.until(lambda: "skips" not in stage.text(), "the other plan")
    stage.click("Move the offsets", "main form")
    stage.wait("No message is skipped", "dialog[open]")
    stage.click("Move", "dialog[open]")
    stage.wait("Result")
    stage.scene("seek-done")


def test_group_is_paused_and_resumed(stage):
    stage.go("/groups/asleep/settings")
    stage.wait("Settings on each broker")
    stage.click("Pause", "main")
    stage.click("Pause", "dialog[open]")
    stage.wait("group asleep paused")
    stage.scene("group-settings")
    stage.click("Resume", "main")
    stage.click("Resume", "dialog[open]")
    stage.wait("group asleep resumed")


def test_dead_letters_are_shown_and_sent_again(stage):
    stage.go("/dead-letters")
    stage.wait("billing")
    stage.scene("dead-letter-groups")
    stage.click("billing", "main")
    stage.wait("payment 0")
    stage.wait("payments")
    stage.run("document.querySelector('main input[type=checkbox]').click()")
    stage.click("Send again", "main form")
    stage.wait("Send 1 message again?", "dialog[open]")
    stage.click("Send", "dialog[open]")
    stage.wait("1 message sent.")
    stage.click("Open", "main")
    stage.wait("Publish again is not offered: it is a dead letter")
    stage.scene("dead-letters")


def test_settings_and_what_differs(stage):
    stage.go("/config")
    stage.wait("Settings in which the brokers")
    stage.until(lambda: re.search(r"No setting differs|differs", stage.text(".card")), "the comparison")
    stage.scene("config")
    stage.go("/brokers/broker-a")
    stage.wait("Files of the log")
    stage.run("const only = document.querySelector('main form.bar select'); only.value = 'all';"
              "only.dispatchEvent(new Event('change'))")
    stage.fill("Key contains", "waitTimeMillsInSend")
    stage.wait("waitTimeMillsInSendQueue")
    stage.run("const form = document.querySelector('main input[name=key]').form;"
              "form.elements.key.value = 'waitTimeMillsInSendQueue'; form.elements.value.value = '201'")
    stage.run("document.querySelector('main input[name=key]').form.requestSubmit()")
    stage.wait("\u2192 201", "dialog[open]")
    stage.click("Change", "dialog[open]")
    stage.wait("\u2192 201")
    stage.scene("broker")


def test_stores_accounts_and_pages_that_do_not_exist(stage):
    stage.go("/store")
    stage.wait("Append latency, p99")
    stage.scene("store")
    stage.go("/accounts")
    stage.wait("Access control is off")
    stage.scene("accounts-off")
    stage.go("/topics/nowhere")
    stage.wait("nowhere")
    stage.until(lambda: "No topic route info" in stage.text("body"), "why there is no such topic")
    stage.scene("topic-unknown")


def test_names_are_found_by_the_search_and_the_menu_opens(stage):
    stage.go("/")
    stage.wait("Brokers up")
    stage.run("const search = document.getElementById('search'); search.value = 'ship';"
              "search.dispatchEvent(new Event('input'))")
    stage.wait("shipping", "#names")
    stage.scene("search", whole=False)
    stage.click("shipping group", "#names")
    stage.wait("Unread messages", "main")
    if stage.run("return innerWidth") < 600:
        stage.click("Menu", "header")
        stage.scene("menu", whole=False)
    stage.click("Store", "header")
    stage.wait("Files of the log")


def test_lost_console_is_reported_and_pause_stops_the_polls(stage):
    stage.go("/groups")
    stage.wait("asleep")
    stage.click("Pause", "header")
    stage.click("Resume", "header")
    stage.run("window.fetch = () => Promise.reject(new Error('gone'))")
    stage.wait("the console does not answer", "#state.bad")
    stage.scene("console-gone", whole=False)


# ---- roles and accounts


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """The address of a console with accounts, on a cluster that serves these accounts only."""
    pytest.importorskip("yaml")
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "tools" / "conf").mkdir(parents=True)
    (folder / "tools" / "conf" / "tools.yml").write_text("accessKey: adminKey\nsecretKey: adminSecret\n", "ascii")
    file = folder / "plain_acl.yml"
    file.write_text(ACCOUNTS, "utf-8")
    with running_name_server(folder) as namesrv, acl_broker(folder / "home", ACCOUNTS, namesrvAddr=namesrv) as broker:
        process, told = start(namesrv, "--accounts", str(file), home=str(folder / "tools"))
        try:
            yield SimpleNamespace(address=re.search(r"http://127\.0\.0\.1:\d+", told).group(), broker=broker)
        finally:
            process.terminate()
            process.wait(240)


def sign_in(stage: Stage, key: str, secret: str) -> None:
    stage.run(f"""const form = document.querySelector("[data-way=account]");
        form.elements.access_key.value = "{key}";
        form.elements.secret_key.value = "{secret}";
        form.requestSubmit()""")


@pytest.mark.parametrize("look", WIDE_AND_PHONE, ids=["wide", "phone"])
def test_people_sign_in_and_may_what_their_accounts_may(guarded, tmp_path, look):
    with Stage(tmp_path, guarded.address, look) as stage:
        stage.go("/", token=False)
        stage.wait("Sign in", "dialog[open]")
        stage.scene("sign-in", whole=False)
        for key, secret in (("aliceKey", "wrong secret"), ("aliceKey", "12345678")):
            sign_in(stage, key, secret)
            if secret == "wrong secret":
                stage.wait("the access key or the secret key is wrong", "#sign-in-problem")
        stage.wait("Brokers up")
        stage.go("/topics", token=False)
        stage.wait("needs the role \u201cadminister\u201d")
        stage.go("/topics/stock/messages", token=False)
        stage.until(lambda: "aliceKey may not do this" in stage.text("body"), "the refusal")
        stage.click("Sign out", "header")
        stage.wait("Sign in", "dialog[open]")
        sign_in(stage, "adminKey", "adminSecret")
        stage.until(lambda: stage.text("#user") == "Sign out", "signed in")
        stage.go("/accounts", token=False)
        stage.wait("aliceKey")
        assert "12345678" not in stage.run("return document.documentElement.outerHTML")
        stage.scene("accounts")
        stage.fill("Account", "aliceKey")
        stage.fill("Name", "stock")
        stage.click("Check", "main")
        stage.wait("denied")


def test_console_without_a_role_says_how_to_get_one(shop, tmp_path):
    process, told = start(shop.namesrv)
    try:
        with Stage(tmp_path, re.search(r"http://127\.0\.0\.1:\d+", told).group(), EVERY_LOOK[0]) as stage:
            stage.go("/topics/orders/publish", token=False)
            stage.wait("needs the role \u201cpublish\u201d")
            assert stage.run("""return (await fetch("/api/topics/orders/publish", { method: "POST", body: "{}",
                headers: { "Content-Type": "application/json", "X-Rmqha-Console": "1" } })).status""") == 403
    finally:
        process.terminate()
        assert process.wait(240) == 0 and isinstance(process, subprocess.Popen)
