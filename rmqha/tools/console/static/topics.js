// Topics: the list, and one with its queues, groups and settings.
import { spark } from "./charts.js";
import {
  badge, card, command, confirmed, count, counted, emptyState, field, filterField, form, forRole, frame, h, link, path, replace, select,
  table, tabs, warnings, when, whole,
} from "./dom.js";

const CHANGED = { queues: "read and write queues", read_queues: "read queues", write_queues: "write queues", perm: "permission" };
const PERMISSIONS = [["rw", "read and write"], ["r", "read only"], ["w", "write only"]];
export const PAGE_ROWS = 100;

export function tile(label, value, line, kind) {
  return h("div", { class: "tile" }, h("div", { class: "label" }, label), h("div", { class: "value" }, value),
    line ? spark(line, kind, label) : null);
}

// Pages of a long list: previous and next.
export function pager(total, offset, shown, move) {
  if (total <= PAGE_ROWS && !offset) return null;
  return h("p", { class: "pager" },
    h("button", { type: "button", class: "plain", disabled: offset === 0, "data-key": "previous", onclick: () => move(Math.max(0, offset - PAGE_ROWS)) }, "Previous"),
    ` ${whole(offset + 1)} to ${whole(offset + shown)} of ${whole(total)} `,
    h("button", { type: "button", class: "plain", disabled: offset + shown >= total, "data-key": "next", onclick: () => move(offset + PAGE_ROWS) }, "Next"));
}

export function openTopics({ api, session, root, again }) {
  let offset = 0;
  const refresh = () => { offset = 0; again(); };
  const kind = h("select", { onchange: refresh, "data-key": "kind" }, ["user", "all", "system", "retry", "dead letter"].map((each) => h("option", {}, each)));
  const filter = filterField("Filter", refresh), live = h("div", { class: "card" });
  frame(root, h("form", { class: "bar", role: "search", onsubmit: (event) => event.preventDefault() }, filter, h("label", {}, "Kind", kind)), live,
    card("Create a topic", forRole(session, "administer", "Creating a topic", () => form([
      field("Topic", { name: "topic", required: true, size: 30 }),
      field("Queues on each broker", { name: "queues", type: "number", min: 1, max: 1024, value: 8 }),
      select("Permission", "perm", PERMISSIONS, "rw")], "Create", async (values) => {
      const done = await api.post("/api/topics", { topic: values.topic, queues: Number(values.queues), perm: values.perm });
      again();
      return [`${done.done}: `, link("topics", values.topic)];
    }))));
  return async () => {
    const text = filter.querySelector("input").value.trim();
    const { topics, total, kinds } = await api.get(`/api/topics?${new URLSearchParams({ kind: kind.value, q: text, offset, limit: PAGE_ROWS })}`);
    replace(live, table("topics", [
      { title: "Topic", name: true, cell: (row) => link("topics", row.name), value: (row) => row.name },
      { title: "Kind", cell: (row) => row.kind, value: (row) => row.kind },
      { title: "Read queues", right: true, cell: (row) => whole(row.read_queues), value: (row) => row.read_queues },
      { title: "Write queues", right: true, cell: (row) => whole(row.write_queues), value: (row) => row.write_queues },
      { title: "Permission", cell: (row) => row.perm, value: (row) => row.perm },
      { title: "Brokers", cell: (row) => row.brokers.map((broker, at) => [at ? ", " : "", link("brokers", broker)]), value: (row) => row.brokers.length },
      { title: "", cell: (row) => h("a", { href: path("topics", row.name, "messages"), "data-key": `m-${row.name}` }, "Messages") },
    ], topics, text ? emptyState(`No topic of this kind contains “${text}”.`) : emptyState("No topic of this kind exists yet.",
      ["Create one below, or with ", command("rmqha topic create orders"), "."]), again),
    pager(total, offset, topics.length, (to) => { offset = to; again(); }),
    h("p", { class: "dim" }, Object.entries(kinds).map(([name, number]) => `${name}: ${whole(number)}`).join(" · ")));
  };
}

export function topicHead(session, name, here) {
  const base = path("topics", name), of = (part) => part ? `${base}/${part}` : base;
  return tabs([[of(""), "Overview"], [of("messages"), "Messages"], [of("publish"), "Publish"], [of("settings"), "Settings"]], of(here));
}

export function openTopic({ api, session, name, root, again }) {
  const [live] = frame(root, h("div", {}));
  return async () => {
    const topic = await api.get(`/api/topics/${encodeURIComponent(name)}`);
    const messages = topic.queues.reduce((sum, queue) => sum + queue.end - queue.begin, 0);
    const rates = topic.queues.map((queue) => queue.per_s).filter((rate) => rate !== null);
    replace(live, topicHead(session, name, ""),
      h("div", { class: "tiles" }, tile("Queues", whole(topic.queues.length)), tile("Messages stored", count(messages)),
        tile("Messages in / s", rates.length ? count(rates.reduce((sum, rate) => sum + rate, 0)) : "–"),
        tile("Groups", whole(topic.groups.length))),
      h("div", { class: "columns" },
        card("Queues", table("queues", [
          { title: "Broker", cell: (row) => link("brokers", row.broker), value: (row) => row.broker },
          { title: "Queue", right: true, cell: (row) => h("a", { href: `${path("topics", name, "messages")}?${new URLSearchParams({ queue: `${row.broker}:${row.queue_id}` })}` }, String(row.queue_id)), value: (row) => row.queue_id },
          { title: "Begin", right: true, cell: (row) => whole(row.begin), value: (row) => row.begin },
          { title: "End", right: true, cell: (row) => whole(row.end), value: (row) => row.end },
          { title: "In / s", right: true, cell: (row) => count(row.per_s), value: (row) => row.per_s },
          { title: "Last message", right: true, cell: (row) => when(row.last_ms), value: (row) => row.last_ms },
        ], topic.queues, "No queues.", again)),
        card("Groups", table("topic-groups", [
          { title: "Group", name: true, cell: (row) => link("groups", row.name), value: (row) => row.name },
          { title: "Unread in this topic", right: true, cell: (row) => whole(row.unread), value: (row) => row.unread },
        ], topic.groups, emptyState("No group consumes this topic.", ["Start a consumer, or look into the topic with ",
          command(`rmqha consume -t ${name}`), "."]), again))));
  };
}

export function openTopicSettings({ api, session, name, root, again, go }) {
  const [live] = frame(root, h("div", {}), h("div", {}));
  const changes = root.lastElementChild;
  let made = false;
  return async () => {
    const { config, differs } = await api.get(`/api/topics/${encodeURIComponent(name)}/settings`);
    replace(live, topicHead(session, name, "settings"), warnings(differs.length ? [`The brokers differ in ${differs.join(", ")}.`] : []),
      card("Settings on each broker", table("topic-config", [
        { title: "Broker", cell: (row) => link("brokers", row.broker), value: (row) => row.broker },
        { title: "Read queues", right: true, cell: (row) => marked(row.read_queues, differs.includes("read_queues")) },
        { title: "Write queues", right: true, cell: (row) => marked(row.write_queues, differs.includes("write_queues")) },
        { title: "Permission", cell: (row) => marked(row.perm, differs.includes("perm")) },
        { title: "Order", cell: (row) => marked(row.order ? "yes" : "no", differs.includes("order")) },
      ], config, "No broker has this topic.", again)));
    if (made) return;
    made = true;
    replace(changes, card("Change the settings", forRole(session, "administer", "Changing a topic", () => form([
      field("Queues", { name: "queues", type: "number", min: 1, max: 1024, placeholder: "unchanged" }, "to read and to write"),
      field("Read queues", { name: "read_queues", type: "number", min: 1, max: 1024, placeholder: "unchanged" }),
      field("Write queues", { name: "write_queues", type: "number", min: 1, max: 1024, placeholder: "unchanged" }),
      select("Permission", "perm", [["", "unchanged"], ...PERMISSIONS], "")], "Change", async (values) => {
      const wanted = Object.fromEntries(Object.entries(values).filter(([, value]) => value).map(([key, value]) => [key, key === "perm" ? value : Number(value)]));
      if (!Object.keys(wanted).length) throw new Error("choose something to change");
      if (wanted.queues && (wanted.read_queues || wanted.write_queues)) throw new Error("give the queues, or the read and write queues");
      if (!await confirmed(`Change ${name}?`, Object.entries(wanted).map(([key, value]) => `${CHANGED[key]}: ${value}, on all brokers`), "Change")) return "Nothing was changed.";
      const done = await api.post(`/api/topics/${encodeURIComponent(name)}/alter`, wanted);
      again();
      return done.done;
    }))), card("Delete the topic", forRole(session, "administer", "Deleting a topic", () => form([], "Delete", async () => {
      const topic = await api.get(`/api/topics/${encodeURIComponent(name)}`);
      const messages = topic.queues.reduce((sum, queue) => sum + queue.end - queue.begin, 0);
      if (!await confirmed(`Delete ${name}?`, [messages ? `${counted(messages, "message")} can't be read any more.` : "It has no messages.",
        topic.groups.length ? `${counted(topic.groups.length, "group")} ${topic.groups.length === 1 ? "consumes" : "consume"} it.` : "No group consumes it."],
      "Delete", messages || topic.groups.length ? name : null)) return "Nothing was deleted.";
      await api.post(`/api/topics/${encodeURIComponent(name)}/delete`, {});
      go("/topics");
      return "deleted";
    }))));
  };
}

export function marked(value, differs) {
  return differs ? badge(String(value), "warn") : String(value);
}
