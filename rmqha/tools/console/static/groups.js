// Consumer groups: the list, one with its queues, clients and settings, and moving its offsets.
import { chart, rangeSelect, spark } from "./charts.js";
import {
  badge, card, command, confirmed, count, counted, emptyState, filterField, form, forRole, frame, fromLocal, h, link, path, replace,
  select, span, table, tabs, topicField, troubles, warnings, when, whole,
} from "./dom.js";
import { marked, PAGE_ROWS, pager, tile } from "./topics.js";

const GROUP_COLUMNS = [
  { title: "Group", name: true, cell: (row) => link("groups", row.name), value: (row) => row.name },
  { title: "Unread", right: true, cell: (row) => whole(row.unread), value: (row) => row.unread },
  { title: "Retries", right: true, cell: (row) => whole(row.retries), value: (row) => row.retries },
  { title: "Both, over time", cell: (row) => spark(row.line, "backlog", "unread messages and retries") },
  { title: "Delay", right: true, cell: (row) => span(row.delay_ms === null ? null : row.delay_ms / 1000), value: (row) => row.delay_ms },
  { title: "Consumed / s", right: true, cell: (row) => count(row.consumed_per_s), value: (row) => row.consumed_per_s },
  { title: "Sent / s", right: true, cell: (row) => count(row.produced_per_s), value: (row) => row.produced_per_s },
  { title: "Growth / s", right: true, cell: (row) => count(row.growth_per_s), value: (row) => row.growth_per_s },
  { title: "Caught up in", right: true, cell: (row) => span(row.seconds_to_go), value: (row) => row.seconds_to_go },
  { title: "Topics", name: true, cell: (row) => h("span", {}, row.topics.map((topic, at) => [at ? ", " : "", link("topics", topic)])), value: (row) => row.topics.join() },
];

export function openGroups({ api, root, again }) {
  let offset = 0;
  const filter = filterField("Filter", () => { offset = 0; again(); }), live = h("div", { class: "card" });
  frame(root, h("form", { class: "bar", role: "search", onsubmit: (event) => event.preventDefault() }, filter), live);
  return async () => {
    const text = filter.querySelector("input").value.trim();
    const { groups, total, errors } = await api.get(`/api/groups?${new URLSearchParams({ q: text, offset, limit: PAGE_ROWS })}`);
    replace(live, troubles(errors.map((error) => ({ status: "WARNING", text: error }))),
      table("groups", GROUP_COLUMNS, groups, text ? emptyState(`No group or topic contains “${text}”.`) : emptyState("No group has consumed yet.",
        ["A group appears when its first consumer starts, or with ", command("rmqha group create billing"), "."]), again),
      pager(total, offset, groups.length, (to) => { offset = to; again(); }),
      h("p", { class: "dim" }, `${counted(total, "group")}, those with the most unread messages and retries first. Retries are messages that consumers have sent back, in the group's retry topic; Delay and the columns after it include them. Refreshed every 5 s. Push consumers report their offsets every 5 s, too.`));
  };
}

function groupHead(name, here) {
  const base = path("groups", name), of = (part) => part ? `${base}/${part}` : base;
  return tabs([[of(""), "Overview"], [of("seek"), "Move the offsets"], [of("settings"), "Settings"], [path("dead-letters", name), "Dead letters"]], of(here));
}


export function openGroup({ api, name, root, again }) {
  const range = rangeSelect(again);
  const [live] = frame(root, h("div", {}));
  return async () => {
    const group = await api.get(`/api/groups/${encodeURIComponent(name)}`);
    const history = await api.get(`/api/history?${new URLSearchParams({ kind: "behind", name, minutes: range.value })}`);
    const clients = group.clients;
    replace(live, groupHead(name, ""), warnings(group.warnings),
      h("div", { class: "tiles" }, tile("State", group.state ?? "–"), tile("Unread messages", whole(group.unread)), tile("Retries that wait", whole(group.retries)),
        tile("Delay", span(group.delay_ms === null ? null : group.delay_ms / 1000)),
        tile("Consumed / s", count(group.consumed_per_s)), tile("Sent / s", count(group.produced_per_s)),
        tile("Caught up in", group.seconds_to_go === null ? "–" : span(group.seconds_to_go))),
      h("section", { class: "card" }, h("h2", { class: "with-choice" }, "Unread messages, over time, with retries", range), chart(history.points, "backlog", "Unread messages and retries")),
      h("div", { class: "columns" },
        card("Queues", table("places", [
          { title: "Topic", name: true, cell: (row) => link("topics", row.topic), value: (row) => row.topic },
          { title: "Broker", cell: (row) => link("brokers", row.broker), value: (row) => row.broker },
          { title: "Queue", right: true, cell: (row) => h("a", { href: `${path("topics", row.topic, "messages")}?${new URLSearchParams({ queue: `${row.broker}:${row.queue_id}`, begin: "offset", offset: String(Math.max(0, row.offset)) })}` }, String(row.queue_id)), value: (row) => row.queue_id },
          { title: "End", right: true, cell: (row) => whole(row.end), value: (row) => row.end },
          { title: "Committed", right: true, cell: (row) => whole(row.offset), value: (row) => row.offset },
          { title: "Unread", right: true, cell: (row) => row.unread ? badge(whole(row.unread), "warn") : "0", value: (row) => row.unread },
        ], group.places, emptyState("Nothing consumed yet.", "The queues appear when the group has stored its first offsets."), again)),
        card("Clients", group.clients_error ? h("p", { class: "dim" }, group.clients_error) : [
          clients.clients.length ? h("p", { class: "dim" }, [clients.consume_type, clients.model, clients.consume_from].join(" · ").toLowerCase()) : null,
          table("clients", [
            { title: "Client", name: true, cell: (row) => row.client_id, value: (row) => row.client_id },
            { title: "Address", cell: (row) => row.address, value: (row) => row.address },
            { title: "Language", cell: (row) => row.language, value: (row) => row.language },
            { title: "Version", cell: (row) => row.version, value: (row) => row.version },
          ], clients.clients, emptyState("No client is connected.", "Unread messages wait until one starts."), again),
          clients.subscriptions.length ? h("p", { class: "dim" }, "subscribes to ", clients.subscriptions.map(([topic, to], at) => [at ? ", " : "", link("topics", topic), ` (${to})`])) : null])));
  };
}

// ---- moving the offsets: first a dry run, then the move

export function openSeek({ api, session, name, root, again, query }) {
  const plan = h("div", { "aria-live": "polite" }), head = h("div", {});
  const time = h("label", { hidden: true }, "Time", h("input", { name: "at", type: "datetime-local", step: "0.001" }));
  const offset = h("label", { hidden: true }, "Offset", h("input", { name: "offset", inputmode: "numeric", pattern: "\\d+", size: 12 }));
  const queue = h("label", { hidden: true }, "Queue", h("input", { name: "queue", placeholder: "broker-a:0", size: 14 }));
  const to = select("To", "to", [["earliest", "the earliest message"], ["latest", "the end"], ["time", "a time"], ["offset", "an offset of one queue"]], "earliest",
    { onchange: (event) => {
      time.hidden = event.target.value !== "time";
      offset.hidden = queue.hidden = event.target.value !== "offset";
    } });
  const topics = api.get(`/api/groups/${encodeURIComponent(name)}`).then(topicsOf, () => []); // a group without offsets is unknown
  const topic = topicField({ required: true, size: 28, value: query.get("topic") || "" }, async () => topics);
  topics.then((found) => {
    const input = topic.querySelector("input");
    if (!input.value && found.length === 1) input.value = found[0];
  });
  frame(root, head, card("Move the offsets", forRole(session, "administer", "Moving offsets", () => [
    h("p", { class: "dim" }, "The dry run shows for each queue what the group would skip or read again. Nothing moves before you confirm it."),
    form([topic, to, time, offset, queue], "Dry run", async (values) => {
      const wanted = { topic: values.topic, to: target(values), dry_run: true };
      show(await api.post(`/api/groups/${encodeURIComponent(name)}/seek`, wanted), wanted);
      return "";
    })])), plan);

  function target(values) {
    if (values.to === "time") {
      const ms = fromLocal(values.at);
      if (ms === null) throw new Error("choose a time");
      return ms;
    }
    if (values.to !== "offset") return values.to;
    if (!/^\d+$/.test(values.offset) || !values.queue.includes(":")) throw new Error("give an offset, and a queue such as broker-a:0");
    return { offset: Number(values.offset), queue: values.queue };
  }

  function show(found, wanted) {
    const skipped = sum(found.plan, (change) => Math.max(0, change)), again_ = sum(found.plan, (change) => Math.max(0, -change));
    replace(plan, card(found.dry_run ? "Dry run" : "Result", warnings(found.notes), table("plan", [
      { title: "Broker", cell: (row) => row.broker }, { title: "Queue", right: true, cell: (row) => String(row.queue_id) },
      { title: "Begin", right: true, cell: (row) => whole(row.min) }, { title: "End", right: true, cell: (row) => whole(row.max) },
      { title: "Committed", right: true, cell: (row) => whole(row.committed) }, { title: "Target", right: true, cell: (row) => whole(row.target) },
      { title: "Messages", right: true, cell: (row) => row.change > 0 ? badge(`skips ${whole(row.change)}`, "bad") : row.change < 0 ? badge(`reads ${whole(-row.change)} again`, "warn") : "none" },
      ...(found.dry_run ? [] : [{ title: "Result", name: true, cell: (row) => row.error ? badge(row.error, "bad") : badge(`at ${whole(row.seen ?? row.target)}`, "good") }]),
    ], found.plan, "No queue would move."),
    found.dry_run && found.plan.length ? form([], "Move the offsets", async () => {
      if (!await confirmed(`Move ${name} in ${wanted.topic}?`, [skipped ? `${counted(skipped, "message")} will be skipped.` : "No message is skipped.",
        again_ ? `${counted(again_, "message")} will be read again.` : "No message is read again.",
        found.online ? "The group is running: its clients move, too." : "The group has no running client."], "Move", skipped ? name : null)) return "Nothing was moved.";
      show(await api.post(`/api/groups/${encodeURIComponent(name)}/seek`, { ...wanted, dry_run: false }), wanted);
      return "";
    }) : null));
  }
  return async () => replace(head, groupHead(name, "seek"));
}

// The topics that a group has offsets in, or subscribes to, without its retry topic.
function topicsOf(group) {
  const subscribed = group.clients?.subscriptions.map(([topic]) => topic) ?? [];
  return [...new Set([...group.topics, ...subscribed])].filter((topic) => topic !== `%RETRY%${group.name}`).sort();
}

function sum(rows, part) {
  return rows.reduce((all, row) => all + part(row.change || 0), 0);
}

export function openGroupSettings({ api, session, name, root, again, go }) {
  const [live] = frame(root, h("div", {}), h("div", {}));
  const changes = root.lastElementChild;
  let made = false;
  return async () => {
    const found = await api.get(`/api/groups/${encodeURIComponent(name)}/settings`);
    const column = (title, key) => ({ title, right: typeof found.config[0]?.[key] === "number",
      cell: (row) => marked(typeof row[key] === "boolean" ? (row[key] ? "yes" : "no") : row[key], found.differs.includes(key)) });
    replace(live, groupHead(name, "settings"), warnings(found.differs.length ? [`The brokers differ in ${found.differs.join(", ")}.`] : []),
      card("Settings on each broker", table("group-config", [{ title: "Broker", cell: (row) => link("brokers", row.broker) },
        column("Consuming", "consume_enable"), column("Broadcasting", "consume_broadcast_enable"), column("From the first message", "consume_from_min_enable"),
        column("Retry queues", "retry_queues"), column("Retries", "retry_max_times"), column("Broker when slow", "which_broker_when_slow")],
      found.config, "No broker knows this group.", again)));
    if (made) return;
    made = true;
    const act = (title, button, lines, post, typed = null) => form([], button, async () => {
      if (!await confirmed(title, lines, button, typed)) return "Nothing was changed.";
      const done = await api.post(`/api/groups/${encodeURIComponent(name)}/${post}`, {});
      if (post === "delete") go("/groups");
      else again();
      return done.done;
    });
    replace(changes, card("Pause and resume", forRole(session, "administer", "Pausing a group", () => [
      h("p", { class: "dim" }, "A paused group gets no messages; its clients stay connected, and their offsets stay."),
      act(`Pause ${name}?`, "Pause", ["All its clients stop getting messages."], "pause"),
      act(`Resume ${name}?`, "Resume", ["Its clients continue where they stopped."], "resume")])),
    card("Delete the group", forRole(session, "administer", "Deleting a group", () =>
      act(`Delete ${name}?`, "Delete", ["Its settings and offsets are removed from all brokers. A running group is refused."], "delete", name))));
  };
}

export function openDeadLetterGroups({ api, root, again }) {
  const [live] = frame(root, h("div", { class: "card" }));
  return async () => {
    const { groups, errors } = await api.get("/api/dead-letters");
    replace(live, warnings(errors), table("dead", [
      { title: "Group", name: true, cell: (row) => link("dead-letters", row.group), value: (row) => row.group },
      { title: "Dead letters", right: true, cell: (row) => whole(row.count), value: (row) => row.count },
      { title: "New", right: true, cell: (row) => whole(row.new), value: (row) => row.new },
      { title: "Oldest", cell: (row) => when(row.oldest_ms), value: (row) => row.oldest_ms },
      { title: "Newest", cell: (row) => when(row.newest_ms), value: (row) => row.newest_ms },
      { title: "", cell: (row) => row.readable ? "" : badge("not readable yet", "warn") },
    ], groups, emptyState("No group has dead letters.", "A message becomes one when a consumer has failed it 16 times, or refused it for good."), again),
    h("p", { class: "dim" }, "New: not sent again yet with “the new ones” or “all”, or with rmqha dlq resend."));
  };
}
