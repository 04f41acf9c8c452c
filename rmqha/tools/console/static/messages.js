// Messages: a topic's, page by page or live; one with its body, properties and trace; publishing one.
import {
  badge, bytes, card, command, confirmed, counted, emptyState, field, form, forRole, frame, fromLocal, h, link, path, replace, rowOf, save,
  select, table, topicField, warnings, when, whole,
} from "./dom.js";
import { jsonTree, parseJson } from "./json.js";
import { topicHead } from "./topics.js";

const TAIL_MS = 1000, KEPT_ROWS = 500;
const FILTERS = ["tag", "key", "sql", "text"];

// ---- a topic's messages

export function openBrowse({ api, session, root, name, query, go }) {
  const chosen = Object.fromEntries(query);
  const live = query.get("live") === "1";
  const results = h("div", { "aria-live": "polite" }), head = h("div", {});
  const queues = h("select", { name: "queue" }, h("option", { value: "" }, "all"),
    chosen.queue ? h("option", { value: chosen.queue, selected: true }, chosen.queue) : null); // until the queues are known
  const begin = chosen.begin || "latest";
  const at = (kind) => ({ hidden: begin !== kind });
  const offset = h("label", at("offset"), "Offset", h("input", { name: "offset", inputmode: "numeric", pattern: "\\d+", value: chosen.offset }));
  const time = h("label", at("time"), "Time", h("input", { name: "at", type: "datetime-local", step: "0.001", value: chosen.at }));
  const starts = select("Begin", "begin", [["latest", "newest first"], ["earliest", "oldest first"], ["time", "at a time"],
    ["offset", "at an offset"]], begin, { onchange: (event) => {
    offset.hidden = event.target.value !== "offset";
    time.hidden = event.target.value !== "time";
  } });
  // The last message: with the newest first, the list begins there.
  const until = chosen.until || "";
  const untilOffset = h("label", { hidden: until !== "offset" }, "Until offset",
    h("input", { name: "until_offset", inputmode: "numeric", pattern: "\\d+", value: chosen.until_offset }));
  const untilTime = h("label", { hidden: until !== "time" }, "Until time",
    h("input", { name: "until_at", type: "datetime-local", step: "0.001", value: chosen.until_at }));
  const ends = select("Until", "until", [["", "the end"], ["time", "a time"], ["offset", "an offset"]], until, { onchange: (event) => {
    untilOffset.hidden = event.target.value !== "offset";
    untilTime.hidden = event.target.value !== "time";
  } });
  const search = h("form", { class: "bar", role: "search", onsubmit: (event) => {
    event.preventDefault();
    const given = [...new FormData(event.target)].filter(([, value]) => value.trim() !== "");
    go(`${path("topics", name, "messages")}?${new URLSearchParams(given)}`);
  } }, h("label", {}, "Queue", queues), starts, offset, time, ends, untilOffset, untilTime,
  field("Tag", { name: "tag", value: chosen.tag, size: 10, placeholder: "a || b" }),
  field("Key", { name: "key", value: chosen.key, size: 12 }),
  field("SQL on properties", { name: "sql", value: chosen.sql, size: 18, placeholder: "price > 10" }),
  field("Text in the body", { name: "text", value: chosen.text, size: 14 }),
  h("button", { type: "submit", class: "act" }, "Show"),
  h("a", { class: "button", href: `${path("topics", name, "messages")}?${new URLSearchParams({ ...onlyFilters(chosen), ...(live ? {} : { live: "1" }) })}` },
    live ? "Stop the live tail" : "Live tail"));
  frame(root, head, h("div", { class: "card" }, search), results);
  fillQueues(api, name, queues, chosen.queue);
  const asked = new URLSearchParams(onlyFilters(chosen));
  if (chosen.queue) asked.set("queue", chosen.queue);
  if (live) return tail({ api, session, name, asked, results, head });
  if (begin === "offset" && chosen.offset) asked.set("offset", chosen.offset);
  else if (begin === "time" && fromLocal(chosen.at || "") !== null) asked.set("time", fromLocal(chosen.at));
  else asked.set("begin", begin === "earliest" ? "earliest" : "latest");
  if (begin === "latest") asked.set("backwards", "1");
  if (until === "offset" && chosen.until_offset) asked.set("until_offset", chosen.until_offset);
  else if (until === "time" && fromLocal(chosen.until_at || "") !== null) asked.set("until", fromLocal(chosen.until_at));
  return async () => {
    replace(head, topicHead(session, name, "messages"));
    const list = h("tbody", {}), notes = h("div", {}), more = h("p", {});
    replace(results, h("div", { class: "card" }, notes, h("table", { class: "messages" }, messageHead(), list), more));
    await pageInto({ api, name, asked, list, notes, more, found: 0, looked: 0 });
  };
}

function onlyFilters(chosen) {
  return Object.fromEntries(FILTERS.filter((each) => chosen[each]).map((each) => [each, chosen[each]]));
}

// Offers the topic's queues, and returns its kind.
async function fillQueues(api, name, queues, chosen) {
  try {
    const topic = await api.get(`/api/topics/${encodeURIComponent(name)}`);
    const [, before] = queues.options;
    queues.append(...topic.queues.map((queue) => {
      const value = `${queue.broker}:${queue.queue_id}`;
      return h("option", { value, selected: value === chosen }, `${queue.broker} ${queue.queue_id} (${whole(queue.end - queue.begin)})`);
    }));
    before?.remove();
    return topic.kind;
  } catch { /* the list below shows the error */
    return "unknown";
  }
}

async function pageInto(state) {
  const { api, name, asked, list, notes, more } = state;
  replace(more, h("span", { class: "dim" }, "Asking the brokers …"));
  const page = await api.get(`/api/topics/${encodeURIComponent(name)}/messages?${asked}`);
  list.append(...page.rows.flatMap((row) => messageRow(api, name, row)));
  state.found += page.rows.length;
  state.looked += page.looked;
  replace(notes, warnings([...page.errors, ...page.notes]));
  const filtered = FILTERS.some((each) => asked.get(each));
  const said = `${counted(state.found, "message")}${filtered ? `, ${whole(state.looked)} looked at` : ""}`;
  if (page.at_end) {
    replace(more, !state.found ? emptyState(filtered ? "No message matches." : "No message is stored here.",
      filtered ? "Check the filters: a key and SQL are compared with the message's properties, the text with the body as it is sent."
        : ["Send one on the tab Publish, or with ", command(`rmqha produce -t ${name}`), "."])
      : h("span", { class: "dim" }, `${said}, all`));
    return;
  }
  asked.set("cursor", page.cursor);
  replace(more, h("button", { type: "button", class: "act", onclick: () => pageInto(state).catch((error) => replace(more, h("span", { role: "alert" }, error.message))) },
    page.rows.length ? "More" : "Continue the search"), h("span", { class: "dim" }, ` ${said} so far`));
}

function tail({ api, session, name, asked, results, head }) {
  const list = h("tbody", {}), notes = h("div", {}), state = h("p", { class: "dim", role: "status" });
  frame(results, h("div", { class: "card" }, notes, state, h("table", { class: "messages" }, messageHead(), list)));
  let seen = 0;
  const draw = async () => {
    if (!head.hasChildNodes()) replace(head, topicHead(session, name, "messages"));
    const page = await api.get(`/api/topics/${encodeURIComponent(name)}/tail?${asked}`);
    asked.set("cursor", page.cursor);
    seen += page.rows.length;
    list.prepend(...[...page.rows].reverse().flatMap((row) => messageRow(api, name, row, "fresh")));
    while (list.children.length > KEPT_ROWS * 2) list.lastChild.remove();
    replace(notes, warnings([...page.errors, ...page.notes]));
    state.textContent = `Live: ${counted(seen, "message")} since this page was opened${page.behind ? `; ${whole(page.behind)} more are waiting` : ""}. The newest is on top.`;
  };
  draw.every_ms = TAIL_MS;
  return draw;
}

const COLUMNS = [
  { title: "Stored", cell: (row) => when(row.store_ms) },
  { title: "Queue", cell: (row) => `${row.broker} ${row.queue_id}` },
  { title: "Offset", right: true, cell: (row) => whole(row.queue_offset) },
  { title: "Keys", name: true, cell: (row) => row.keys.join(" ") },
  { title: "Tag", cell: (row) => row.tags },
  { title: "Size", right: true, cell: (row) => bytes(row.body_size) },
  { title: "Body", name: true, cell: (row) => h("span", { class: "mono beginning" }, beginning(row)) },
];

function messageHead(columns = COLUMNS) {
  return h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col", class: column.right ? "right" : null }, column.title)), h("th", {}, "")));
}

export function beginning(row) {
  if (row.body_error) return badge(row.body_error, "warn");
  if (row.text === null) return h("span", { class: "dim" }, `binary: ${(row.hex.split("\n")[0] || "").slice(10, 57).trim()}`);
  return row.text.slice(0, 200) + (row.is_cut || row.text.length > 200 ? " …" : "");
}

// A row, and below it the whole message when it is opened.
export function messageRow(api, topic, row, kind = null, columns = COLUMNS) {
  const place = h("td", { colspan: columns.length + 1 });
  const below = h("tr", { class: "opened", hidden: true }, place);
  const button = h("button", { type: "button", class: "plain", "aria-expanded": "false", "aria-label": `Show message ${row.queue_offset}`, onclick: async () => {
    below.hidden = !below.hidden;
    button.setAttribute("aria-expanded", String(!below.hidden));
    button.textContent = below.hidden ? "Open" : "Close";
    if (below.hidden || place.hasChildNodes()) return;
    replace(place, h("p", { class: "dim" }, "Reading the message …"));
    try {
      const { messages } = await api.get(`/api/messages?${new URLSearchParams({ topic, id: row.message_id })}`);
      replace(place, messages.length ? whole_(api, messages[0]) : h("p", {}, "The message is not there any more: its file was deleted."));
    } catch (error) {
      replace(place, h("p", { role: "alert" }, error.message));
    }
  } }, "Open");
  const line = rowOf(columns, row, { class: kind });
  line.append(h("td", { class: "right" }, button));
  return [line, below];
}

// ---- one message

export function openMessages({ api, root, query, go }) {
  const wanted = { topic: query.get("topic") || "", id: query.get("id") || "", key: query.get("key") || "" };
  const input = (label, name, wide) => field(label, { name, value: wanted[name], class: wide ? "wide" : null });
  const offer = async (text) => text ? (await api.get(`/api/search?${new URLSearchParams({ q: text })}`)).topics
    : (await api.get("/api/topics?kind=user&limit=20")).topics.map((row) => row.name);
  const found = h("div", { "aria-live": "polite" });
  root.replaceChildren(h("form", { class: "bar card", role: "search", onsubmit: (event) => {
    event.preventDefault();
    const given = [...new FormData(event.target)].filter(([, value]) => value.trim());
    go(`/messages?${new URLSearchParams(given)}`);
  } }, topicField({ value: wanted.topic }, offer), input("Message id", "id", true), input("or key", "key"), h("button", { type: "submit", class: "act" }, "Search")), found);
  return async () => {
    if (!wanted.id && !wanted.key) {
      replace(found, emptyState("Look up one message by its id or key.",
        "A producer's id and a key need the topic, too; an offset id does not.",
        ["To browse all messages of a topic, open ", h("a", { href: "/topics" }, "the topic"), " and its tab Messages."]));
      return;
    }
    replace(found, h("p", { class: "dim" }, "Asking the brokers …"));
    try {
      const { messages } = await api.get(`/api/messages?${query}`);
      replace(found, messages.length === 1 ? whole_(api, messages[0]) : several(messages));
    } catch (error) {
      replace(found, h("p", { role: "alert" }, badge("query failed", "bad"), ` ${error.message}`));
    }
  };
}

export function messageHref(topic, id) {
  return `/messages?${new URLSearchParams({ topic, id })}`;
}

function several(messages) {
  return card(null, table("messages", [
    { title: "Stored", cell: (row) => when(row.storeTimestamp) },
    { title: "Id", name: true, cell: (row) => h("a", { href: messageHref(row.topic, row.offsetMsgId), class: "mono" }, row.msgId) },
    { title: "Keys", name: true, cell: (row) => row.keys || "" },
    { title: "Tag", cell: (row) => row.tags || "" },
    { title: "Size", right: true, cell: (row) => bytes(row.body.size) },
    { title: "Body", name: true, cell: (row) => h("span", { class: "mono dim" }, row.body.error || row.body.text === null ? row.body.error || "binary" : row.body.text.slice(0, 80)) },
  ], messages, emptyState("Message not found.", "Its file may have been deleted, or it was never sent.")));
}

function whole_(api, message) {
  const trace = h("div", {}, h("p", { class: "dim" }, "Loading the trace …"));
  api.get(`/api/trace?${new URLSearchParams({ topic: message.topic, id: message.offsetMsgId })}`)
    .then((found) => replace(trace, tracks(found.tracks), events(found.events, found.errors)))
    .catch((error) => replace(trace, h("p", { role: "alert" }, error.message)));
  const pairs = [["Topic", link("topics", message.topic)], ["Id", h("span", { class: "mono" }, message.msgId)],
    ["Offset id", h("a", { class: "mono", href: messageHref(message.topic, message.offsetMsgId) }, message.offsetMsgId)], ["Keys", message.keys || "–"],
    ["Tag", message.tags || "–"], ["Stored", `${when(message.storeTimestamp)} at ${message.storeHost}`],
    ["Born", `${when(message.bornTimestamp)} at ${message.bornHost}`],
    ["Place", `queue ${message.queueId}, offset ${message.queueOffset}, log offset ${message.commitLogOffset}`],
    ["Size in the store", bytes(message.storeSize)], ["Retried", message.reconsumeTimes === 1 ? "once" : `${message.reconsumeTimes} times`]];
  return [body(api, message), h("div", { class: "columns" },
    card("Message", h("dl", {}, pairs.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]))),
    card("Properties", table("properties", [{ title: "Name", cell: (row) => row[0] }, { title: "Value", name: true, cell: (row) => row[1] }],
      Object.entries(message.properties), "None."))),
  card("Consumption and trace", trace)];
}

// Copying the body, and filling it into the form that publishes; or why not.
function reuse(message, shown, status) {
  const found = message.body;
  const why = found.text === null ? "a binary body" : found.cut ? "a body of which only the beginning is shown" : null;
  if (why) return h("span", { class: "dim" }, `Copy and Publish again are not offered for ${why}. `);
  const reason = notAgain(message);
  return [h("button", { type: "button", class: "plain", onclick: async () => { status.textContent = ` ${await copied(found.text, shown())}`; } }, "Copy"), " ",
    reason ? h("span", { class: "dim" }, `Publish again is not offered: ${reason}. `)
      : h("a", { class: "button plain", href: path("topics", message.topic, "publish"), onclick: (event) => {
        if (!event.ctrlKey && !event.metaKey && !event.shiftKey) draft = message;
      } }, "Publish again")];
}

// Over HTTP from another host, browsers offer no clipboard: then the text is selected.
async function copied(text, shown) {
  try {
    await navigator.clipboard.writeText(text);
    return "copied";
  } catch {
    for (let each = shown.parentElement; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
    getSelection().selectAllChildren(shown);
    shown.focus();
    return "The body is selected: copy it with Ctrl-C.";
  }
}

function body(api, message) {
  const found = message.body;
  if (found.error) return card("Body: not shown", h("p", { role: "alert" }, found.error));
  const status = h("span", { class: "dim", role: "status" });
  const download = h("button", { type: "button", class: "plain", onclick: async () => {
    try {
      save(await api.blob(`/api/messages/download?${new URLSearchParams({ topic: message.topic, id: message.offsetMsgId })}`), `${message.msgId}.bin`);
      status.textContent = "";
    } catch (error) {
      status.textContent = ` ${error.message}`;
    }
  } }, "Download"), bar = h("p", { class: "bodybar" }, download, " ", reuse(message, () => text, status), status);
  const size = `${bytes(found.size)}${found.cut ? ", the beginning of it" : ""}`;
  const hex = h("pre", { class: "hex", tabindex: 0 }, found.hex);
  const text = h("pre", { id: "body", tabindex: 0 }, found.text);
  if (found.text === null) return card(`Body: ${size}, binary`, bar, hex);
  const json = found.cut ? null : parseJson(found.text);
  if (!json?.children) return card(`Body: ${size}`, bar, text, h("details", {}, h("summary", {}, "as bytes"), hex));
  return card(`Body: ${size}, JSON`, bar, jsonTree(json), h("details", {}, h("summary", {}, "as text"), text),
    h("details", {}, h("summary", {}, "as bytes"), hex));
}

const STATES = { CONSUMED: "good", CONSUMED_BUT_FILTERED: "good", NOT_CONSUME_YET: "warn", NOT_ONLINE: "bad" };

function tracks(list) {
  return table("tracks", [
    { title: "Group", name: true, cell: (row) => link("groups", row.group) },
    { title: "By its offset", cell: (row) => badge(row.state.toLowerCase().replaceAll("_", " "), STATES[row.state] || "") },
    { title: "", name: true, cell: (row) => row.why || "" },
  ], list, "No consumer group consumes this topic.");
}

const KINDS = { Pub: "sent", SubBefore: "given to a listener", SubAfter: "listener returned", EndTransaction: "transaction ended" };

function events(list, errors) {
  return h("div", {}, h("h2", {}, "Trace"), errors.map((error) => h("p", { role: "alert" }, error)), table("events", [
    { title: "Time", cell: (row) => when(row.at_ms) },
    { title: "Event", cell: (row) => KINDS[row.type] || row.type },
    { title: "Group", name: true, cell: (row) => row.group || "" },
    { title: "Client", cell: (row) => row.client || "" },
    { title: "Took", right: true, cell: (row) => row.type === "SubBefore" ? "" : `${row.cost_ms} ms` },
    { title: "", cell: (row) => badge(row.status, row.status === "success" ? "good" : "bad") },
  ], list, "No trace: the clients do not write traces, or the trace topic has another name."));
}

// ---- publishing one

// By the kind of the topic: why publishing asks first.
const RISKS = {
  system: "This is a topic of the system: the brokers themselves read it.", retry: "This is a retry topic: its group reads it as messages that failed.",
  "dead letter": "This is a topic of dead letters: they count as messages that the group has given up.",
  unknown: "It is not known whether this topic exists: the message may create it.",
};

const DELAYS = ["none", "1 s", "5 s", "10 s", "30 s", "1 min", "2 min", "3 min", "4 min", "5 min", "6 min", "7 min", "8 min", "9 min",
  "10 min", "20 min", "30 min", "1 h", "2 h"];

let draft = null; // the message to publish again, from the click on its link until the form is there

// Why the form below can't hold a message, or null.
function notAgain(message) {
  if (message.topic.startsWith("%DLQ%")) return "it is a dead letter, which the page Dead letters sends again";
  const odd = Object.entries(message.userProperties).find(([name, value]) => !value || name !== name.trim() || /[=\r\n]/.test(name) || /[\r\n]/.test(value));
  if (odd) return `the form can't hold its property “${odd[0]}”`;
  return /[\r\n]/.test(`${message.keys ?? ""}${message.tags ?? ""}`) ? "its keys or tag have several lines" : null;
}

// A text field would change the ends of lines; Base64 keeps them.
function draftOf(message) {
  const text = message.body.text, asBytes = text.includes("\r");
  const bytes_ = asBytes ? Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join("") : "";
  return { body: asBytes ? btoa(bytes_) : text, encoding: asBytes ? "base64" : "text", tags: message.tags ?? "", keys: message.keys ?? "",
    properties: Object.entries(message.userProperties).map(([name, value]) => `${name}=${value}`).join("\n") };
}

export function openPublish({ api, session, root, name }) {
  const queues = h("select", { name: "queue" }, h("option", { value: "" }, "any"));
  const head = h("div", {});
  frame(root, head, card("Publish a message", forRole(session, "publish", "Publishing", () => {
    const kind = fillQueues(api, name, queues, null);
    const filled = draft?.topic === name ? draftOf(draft) : { encoding: "text" };
    draft = null;
    return form([
      h("label", { class: "full" }, "Body", h("textarea", { name: "body", rows: 8, spellcheck: "false" }, filled.body)),
      select("The body is", "encoding", [["text", "text, sent as UTF-8"], ["base64", "Base64 of bytes"]], filled.encoding),
      field("Tag", { name: "tags", size: 12, value: filled.tags }),
      field("Keys", { name: "keys", size: 18, value: filled.keys }, "separated by blanks"),
      select("Delay", "delay_level", DELAYS.map((each, level) => [String(level), level ? `${level}: ${each}` : each]), "0"),
      h("label", {}, "Queue", queues),
      h("label", { class: "full" }, "Properties, one NAME=VALUE per line", h("textarea", { name: "properties", rows: 2, spellcheck: "false" }, filled.properties)),
    ], "Publish", async (values) => {
      const properties = Object.fromEntries(values.properties.split("\n").filter((line) => line.trim()).map((line) => {
        const at = line.indexOf("=");
        if (at < 1) throw new Error(`property “${line}”: write NAME=VALUE`);
        return [line.slice(0, at).trim(), line.slice(at + 1)];
      }));
      const risk = RISKS[await kind];
      if (risk && !await confirmed(`Publish to ${name}?`, [risk], "Publish")) return "Nothing was sent.";
      const sent = await api.post(`/api/topics/${encodeURIComponent(name)}/publish`, { ...values, properties, delay_level: Number(values.delay_level), queue: values.queue || null });
      return [badge(sent.status, sent.status === "SEND_OK" ? "good" : "warn"), ` ${sent.broker} queue ${sent.queue_id}, offset ${sent.queue_offset}: `,
        h("a", { href: messageHref(name, sent.id) }, sent.unique_id || sent.id)];
    }, { class: "bar wide" });
  })));
  return async () => replace(head, topicHead(session, name, "publish"));
}
