// Looks up a message, shows its body safely, and its trace.
import { badge, bytes, card, h, link, replace, table, when } from "./dom.js";

export function openMessages({ api, root, query, go }) {
  const wanted = { topic: query.get("topic") || "", id: query.get("id") || "", key: query.get("key") || "" };
  const field = (label, name, wide) => h("label", {}, label, h("input", { name, value: wanted[name], class: wide ? "wide" : null, autocomplete: "off" }));
  const found = h("div", { "aria-live": "polite" });
  root.replaceChildren(h("form", { class: "bar", role: "search", onsubmit: (event) => {
    event.preventDefault();
    const given = [...new FormData(event.target)].filter(([, value]) => value.trim());
    go(`/messages?${new URLSearchParams(given)}`);
  } }, field("Topic", "topic"), field("Message id", "id", true), field("or key", "key"), h("button", { type: "submit", class: "act" }, "Search")), found);
  return async () => {
    if (!wanted.id && !wanted.key) {
      replace(found, h("p", { class: "dim" }, "Search by message id (the producer's id needs the topic, too; an offset id does not), or by topic and key."));
      return;
    }
    replace(found, h("p", { class: "dim" }, "Asking the brokers …"));
    try {
      const { messages } = await api.get(`/api/messages?${query}`);
      replace(found, messages.length === 1 ? await whole(api, messages[0]) : several(messages));
    } catch (error) {
      replace(found, h("p", { role: "alert" }, badge("query failed", "bad"), ` ${error.message}`));
    }
  };
}

function href(message) {
  return `/messages?${new URLSearchParams({ topic: message.topic, id: message.offsetMsgId })}`;
}

function several(messages) {
  return card(null, table("messages", [
    { title: "Stored", cell: (row) => when(row.storeTimestamp) },
    { title: "Id", name: true, cell: (row) => h("a", { href: href(row), class: "mono" }, row.msgId) },
    { title: "Keys", name: true, cell: (row) => row.keys || "" },
    { title: "Tags", cell: (row) => row.tags || "" },
    { title: "Size", right: true, cell: (row) => bytes(row.body.size) },
    { title: "Body", name: true, cell: (row) => h("span", { class: "mono dim" }, row.body.error || row.body.text === null ? row.body.error || "binary" : row.body.text.slice(0, 80)) },
  ], messages, "Message not found: its file may have been deleted, or it was never sent."));
}

async function whole(api, message) {
  const trace = h("div", {}, h("p", { class: "dim" }, "Loading the trace …"));
  api.get(`/api/trace?${new URLSearchParams({ topic: message.topic, id: message.offsetMsgId })}`)
    .then((found) => replace(trace, tracks(found.tracks), events(found.events, found.errors)))
    .catch((error) => replace(trace, h("p", { role: "alert" }, error.message)));
  const pairs = [["Topic", link("topics", message.topic)], ["Id", message.msgId], ["Offset id", message.offsetMsgId], ["Keys", message.keys || "–"],
    ["Tags", message.tags || "–"], ["Stored", `${when(message.storeTimestamp)} at ${message.storeHost}`],
    ["Born", `${when(message.bornTimestamp)} at ${message.bornHost}`],
    ["Place", `queue ${message.queueId}, offset ${message.queueOffset}, log offset ${message.commitLogOffset}`],
    ["Size in the store", bytes(message.storeSize)], ["Retried", `${message.reconsumeTimes} times`]];
  return [h("div", { class: "columns" },
    card("Message", h("dl", {}, pairs.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]))),
    card("Properties", table("properties", [{ title: "Name", cell: (row) => row[0] }, { title: "Value", name: true, cell: (row) => row[1] }],
      Object.entries(message.properties), "None."))),
  body(message.body), card("Consumption and trace", trace)];
}

function body(found) {
  if (found.error) return card("Body: not shown", h("p", { role: "alert" }, found.error));
  const size = `${bytes(found.size)}${found.cut ? ", truncated" : ""}`;
  if (found.text === null) return card(`Body: ${size}, binary`, h("pre", { class: "hex", tabindex: 0 }, found.hex));
  return card(`Body: ${size}`, h("pre", { id: "body", tabindex: 0 }, found.text),
    h("details", {}, h("summary", {}, "as bytes"), h("pre", { class: "hex", tabindex: 0 }, found.hex)));
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
