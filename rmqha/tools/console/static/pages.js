// The pages. Each `open(context)` puts its frame into context.root, and returns a function that redraws it with new data.
import { chart, clusterMap, diskBar, segmentStrip, spark } from "./charts.js";
import { badge, bytes, card, count, h, link, percent, replace, span, table, tone, when, whole } from "./dom.js";
import { openMessages } from "./messages.js";

function frame(root, ...parts) {
  root.replaceChildren(...parts);
  return parts;
}

function troubles(list) {
  const worst = [...list].sort((one, other) => (tone(one.status) === "bad" ? 0 : 1) - (tone(other.status) === "bad" ? 0 : 1));
  return worst.length ? h("ul", { class: "troubles", "aria-label": "Problems" },
    worst.map((each) => h("li", { class: tone(each.status) }, each.text))) : null;
}

function tile(label, value, line, kind) {
  return h("div", { class: "tile" }, h("div", { class: "label" }, label), h("div", { class: "value" }, value),
    line ? spark(line, kind, label) : null);
}

// A field that filters the rows, also when they are refreshed.
function filterField(label, changed) {
  return h("label", {}, label, h("input", { id: "filter", type: "search", oninput: changed, "data-key": "filter" }));
}

// A form that changes something: it asks for confirmation, and shows the result.
function change(title, fields, button, run) {
  const status = h("p", { role: "status" });
  return card(title, h("form", { class: "bar", onsubmit: async (event) => {
    event.preventDefault();
    const values = Object.fromEntries(new FormData(event.target));
    if (!confirm(`${title}: ${Object.entries(values).map(([name, value]) => `${name} ${value}`).join(", ")}?`)) return;
    try {
      status.textContent = `Done: ${(await run(values)).done}.`;
    } catch (error) {
      status.textContent = `Not done: ${error.message}`;
    }
  } }, fields, h("button", { type: "submit", class: "act" }, button)), status);
}

function field(label, attributes) {
  return h("label", {}, label, h("input", attributes));
}

function openCluster({ api, session, root, again }) {
  const [live] = frame(root, h("div", {}));
  return async () => {
    const cluster = await api.get("/api/cluster");
    const slaves = cluster.replication.flatMap((each) => each.slaves.map((slave) => ({ ...slave, of: each.name })));
    const lags = slaves.map((slave) => slave.lag_bytes).filter((lag) => lag !== null);
    const up = cluster.brokers.filter((broker) => !broker.error).length;
    const faults = [...cluster.faults, ...cluster.replication.flatMap((each) => each.faults.map((fault) =>
      ({ ...fault, text: `${each.name}: ${fault.text}` }))),
    ...slaves.filter((slave) => slave.status !== "OK" && slave.note).map((slave) => ({ status: slave.status, text: `${slave.of}, slave ${slave.address}: ${slave.note}` })),
    ...cluster.name_servers.filter((each) => each.error && !cluster.faults.some((fault) => fault.text === each.error))
      .map((each) => ({ status: "WARNING", text: each.error }))];
    replace(live, troubles(faults),
      h("div", { class: "tiles" },
        tile("Brokers up", `${up} of ${cluster.brokers.length}`),
        tile("Messages in / s", count(cluster.in_msgs_per_s), cluster.lines.in[""], "in"),
        tile("Messages out / s", count(cluster.out_msgs_per_s), cluster.lines.out[""], "out"),
        tile("Messages behind, all groups", count(cluster.behind), cluster.lines.behind[""], "backlog"),
        tile("Largest replication lag", lags.length ? bytes(Math.max(...lags)) : "–")),
      card("Replication", clusterMap(cluster)),
      card("Brokers", table("brokers", [
        { title: "Broker", cell: (row) => row.name, value: (row) => row.name },
        { title: "Id", right: true, cell: (row) => String(row.broker_id), value: (row) => row.broker_id },
        { title: "Address", cell: (row) => row.address, value: (row) => row.address },
        { title: "Role", cell: (row) => row.error ? badge("no answer", "bad") : row.epoch == null ? row.role : `${row.role}, epoch ${row.epoch}`, value: (row) => row.role },
        { title: "In / s", right: true, cell: (row) => count(row.in_msgs_per_s), value: (row) => row.in_msgs_per_s },
        { title: "", cell: (row) => spark(cluster.lines.in[row.address] || [], "in", "messages in per second") },
        { title: "Out / s", right: true, cell: (row) => count(row.out_msgs_per_s), value: (row) => row.out_msgs_per_s },
        { title: "", cell: (row) => spark(cluster.lines.out[row.address] || [], "out", "messages out per second") },
        { title: "Log", right: true, cell: (row) => row.error ? "–" : bytes(row.log_size), value: (row) => row.log_size },
        { title: "Disk", right: true, cell: (row) => percent(row.disk_used), value: (row) => row.disk_used },
        { title: "Version", cell: (row) => row.version, value: (row) => row.version },
      ], cluster.brokers, "No broker is registered at the name server.", again)),
      card("Slaves", table("slaves", [
        { title: "Of", cell: (row) => row.of, value: (row) => row.of },
        { title: "Address", cell: (row) => row.address, value: (row) => row.address },
        { title: "State", cell: (row) => badge(row.state, tone(row.status)), value: (row) => row.state },
        { title: "Lag", right: true, cell: (row) => bytes(row.lag_bytes), value: (row) => row.lag_bytes },
        { title: "", cell: (row) => spark(cluster.lines.lag[row.address] || [], "lag", "lag in bytes") },
        { title: "Lag time", right: true, cell: (row) => span(row.lag_seconds), value: (row) => row.lag_seconds },
        { title: "In sync", cell: (row) => row.in_sync === null ? "?" : row.in_sync ? "yes" : "no", value: (row) => String(row.in_sync) },
      ], slaves, "No slaves.", again)),
      h("p", { class: "dim" }, `Name servers: ${cluster.name_servers.map((each) => `${each.address} ${each.error ? "(no answer)" : ""}`).join(", ")}`));
    if (session.writes && !root.querySelector("#permission")) root.append(permission(api));
  };
}

function permission(api) {
  const form = change("Write permission of a broker", [field("broker", { name: "broker", required: true, size: 16 }),
    h("label", {}, "producers may send", h("select", { name: "allow" }, h("option", {}, "no"), h("option", {}, "yes")))],
  "Change", (values) => api.post(`/api/brokers/${encodeURIComponent(values.broker)}/write-permission`, { allow: values.allow === "yes" }));
  form.id = "permission";
  return form;
}

function openTopics({ api, session, root, again }) {
  const kind = h("select", { onchange: again }, ["user", "all", "system", "retry", "dead letter"].map((each) => h("option", {}, each)));
  const field_ = filterField("Filter", again), live = h("div", { class: "card" });
  frame(root, h("form", { class: "bar", role: "search", onsubmit: (event) => event.preventDefault() }, field_, h("label", {}, "Kind", kind)), live);
  if (session.writes) {
    root.append(change("Create or change a topic", [field("topic", { name: "topic", required: true, size: 30 }),
      field("queues on each broker", { name: "queues", type: "number", min: 1, max: 1024, value: 8 })], "Save",
    (values) => api.post("/api/topics", { topic: values.topic, queues: Number(values.queues) })));
  }
  return async () => {
    const text = field_.querySelector("input").value.toLowerCase();
    const { topics } = await api.get("/api/topics");
    const rows = topics.filter((row) => row.name.toLowerCase().includes(text) && (kind.value === "all" || row.kind === kind.value));
    replace(live, table("topics", [
      { title: "Topic", name: true, cell: (row) => link("topics", row.name), value: (row) => row.name },
      { title: "Kind", cell: (row) => row.kind, value: (row) => row.kind },
      { title: "Read queues", right: true, cell: (row) => whole(row.read_queues), value: (row) => row.read_queues },
      { title: "Write queues", right: true, cell: (row) => whole(row.write_queues), value: (row) => row.write_queues },
      { title: "Permission", cell: (row) => row.perm, value: (row) => row.perm },
      { title: "Brokers", cell: (row) => row.brokers.join(", "), value: (row) => row.brokers.length },
    ], rows, "No matching topic.", again), h("p", { class: "dim" }, `${rows.length} of ${topics.length} topics`));
  };
}

function openTopic({ api, name, root, again }) {
  const [live] = frame(root, h("div", {}));
  return async () => {
    const topic = await api.get(`/api/topics/${encodeURIComponent(name)}`);
    const messages = topic.queues.reduce((sum, queue) => sum + queue.end - queue.begin, 0);
    const rates = topic.queues.map((queue) => queue.per_s).filter((rate) => rate !== null);
    replace(live,
      h("div", { class: "tiles" }, tile("Queues", whole(topic.queues.length)), tile("Messages stored", count(messages)),
        tile("Messages in / s", rates.length ? count(rates.reduce((sum, rate) => sum + rate, 0)) : "–"),
        tile("Groups", whole(topic.groups.length))),
      h("div", { class: "columns" },
        card("Queues", table("queues", [
          { title: "Broker", cell: (row) => row.broker, value: (row) => row.broker },
          { title: "Queue", right: true, cell: (row) => String(row.queue_id), value: (row) => row.queue_id },
          { title: "Begin", right: true, cell: (row) => whole(row.begin), value: (row) => row.begin },
          { title: "End", right: true, cell: (row) => whole(row.end), value: (row) => row.end },
          { title: "In / s", right: true, cell: (row) => count(row.per_s), value: (row) => row.per_s },
          { title: "Last message", right: true, cell: (row) => when(row.last_ms), value: (row) => row.last_ms },
        ], topic.queues, "No queues.", again)),
        h("div", {}, card("Groups", table("topic-groups", [
          { title: "Group", name: true, cell: (row) => link("groups", row.name), value: (row) => row.name },
          { title: "Behind in this topic", right: true, cell: (row) => whole(row.behind), value: (row) => row.behind },
        ], topic.groups, "No consumer group consumes this topic.", again)),
        card("Messages", h("p", {}, h("a", { href: `/messages?topic=${encodeURIComponent(name)}` }, "Search by key or id"))))));
  };
}

const GROUP_COLUMNS = [
  { title: "Group", name: true, cell: (row) => link("groups", row.name), value: (row) => row.name },
  { title: "Behind", right: true, cell: (row) => whole(row.behind), value: (row) => row.behind },
  { title: "Backlog", cell: (row) => spark(row.line, "backlog", "messages behind") },
  { title: "Delay", right: true, cell: (row) => span(row.delay_ms === null ? null : row.delay_ms / 1000), value: (row) => row.delay_ms },
  { title: "Consumed / s", right: true, cell: (row) => count(row.consumed_per_s), value: (row) => row.consumed_per_s },
  { title: "Sent / s", right: true, cell: (row) => count(row.produced_per_s), value: (row) => row.produced_per_s },
  { title: "Growth / s", right: true, cell: (row) => count(row.growth_per_s), value: (row) => row.growth_per_s },
  { title: "Caught up in", right: true, cell: (row) => span(row.seconds_to_go), value: (row) => row.seconds_to_go },
  { title: "Topics", name: true, cell: (row) => row.topics.map((topic, at) => [at ? ", " : "", link("topics", topic)]), value: (row) => row.topics.join() },
];

function openGroups({ api, root, again }) {
  const field_ = filterField("Filter", again), live = h("div", { class: "card" });
  frame(root, h("form", { class: "bar", role: "search", onsubmit: (event) => event.preventDefault() }, field_), live);
  return async () => {
    const text = field_.querySelector("input").value.toLowerCase();
    const { groups, errors } = await api.get("/api/groups");
    const rows = groups.filter((row) => [row.name, ...row.topics].some((each) => each.toLowerCase().includes(text)));
    replace(live, troubles(errors.map((error) => ({ status: "WARNING", text: error }))),
      table("groups", GROUP_COLUMNS, rows, "No matching group.", again),
      h("p", { class: "dim" }, `${rows.length} of ${groups.length} groups, refreshed every 5 s; push consumers report their offsets every 5 s, too`));
  };
}

function openGroup({ api, session, name, root, again }) {
  const [live] = frame(root, h("div", {}));
  if (session.writes) {
    root.append(change("Reset the offsets", [field("topic", { name: "topic", required: true, size: 30 }),
      field("to: earliest, latest, or a time in ms", { name: "to", required: true, size: 24 })], "Reset",
    (values) => api.post(`/api/groups/${encodeURIComponent(name)}/offsets`,
      { topic: values.topic, to: /^\d+$/.test(values.to) ? Number(values.to) : values.to })));
  }
  return async () => {
    const group = await api.get(`/api/groups/${encodeURIComponent(name)}`);
    const clients = group.clients;
    replace(live,
      h("div", { class: "tiles" }, tile("Messages behind", whole(group.behind)),
        tile("Delay", span(group.delay_ms === null ? null : group.delay_ms / 1000)),
        tile("Consumed / s", count(group.consumed_per_s)), tile("Sent / s", count(group.produced_per_s)),
        tile("Caught up in", group.seconds_to_go === null ? "–" : span(group.seconds_to_go))),
      card("Messages behind, over time", chart(group.history, "backlog", "Messages behind")),
      h("div", { class: "columns" },
        card("Queues", table("places", [
          { title: "Topic", name: true, cell: (row) => link("topics", row.topic), value: (row) => row.topic },
          { title: "Broker", cell: (row) => row.broker, value: (row) => row.broker },
          { title: "Queue", right: true, cell: (row) => String(row.queue_id), value: (row) => row.queue_id },
          { title: "End", right: true, cell: (row) => whole(row.end), value: (row) => row.end },
          { title: "Offset", right: true, cell: (row) => whole(row.offset), value: (row) => row.offset },
          { title: "Behind", right: true, cell: (row) => row.behind ? badge(whole(row.behind), "warn") : "0", value: (row) => row.behind },
        ], group.places, "Nothing consumed yet.", again)),
        card("Clients", group.clients_error ? h("p", { class: "dim" }, group.clients_error) : [
          clients.clients.length ? h("p", { class: "dim" }, [clients.consume_type, clients.model, clients.consume_from].join(" · ").toLowerCase()) : null,
          table("clients", [
            { title: "Client", name: true, cell: (row) => row.client_id, value: (row) => row.client_id },
            { title: "Address", cell: (row) => row.address, value: (row) => row.address },
            { title: "Language", cell: (row) => row.language, value: (row) => row.language },
            { title: "Version", cell: (row) => row.version, value: (row) => row.version },
          ], clients.clients, "No client is connected.", again),
          clients.subscriptions.length ? h("p", { class: "dim" }, `subscribes to ${clients.subscriptions.map(([topic, to]) => `${topic} (${to})`).join(", ")}`) : null])));
  };
}

function openStore({ api, root }) {
  const [live] = frame(root, h("div", { class: "columns wide" }));
  return async () => {
    const { at_ms: now, brokers } = await api.get("/api/store");
    replace(live, brokers.map((broker) => card(`${broker.name} · ${broker.broker_id} · ${broker.address}`,
      broker.error ? h("p", {}, badge("no answer", "bad"), ` ${broker.error}`) : h("dl", {},
        row("Files of the log", `${whole(broker.segments)} of ${bytes(broker.file_size)}`, segmentStrip(broker)),
        row("Log", `${whole(broker.min_offset)} to ${whole(broker.max_offset)}, ${bytes(broker.log_size)}, grows by ${bytes(broker.log_bytes_per_s)} / s`),
        row("Oldest message", broker.earliest_ms > 0 ? `${when(broker.earliest_ms)}, ${span((now - broker.earliest_ms) / 1000)} ago` : "–"),
        row("Disk of the log", `${percent(broker.disk_used)} used${broker.disk_limit === null ? "" : `, files are deleted early above ${percent(broker.disk_limit)}`}`,
          broker.disk_used === null ? null : diskBar(broker.disk_used, broker.disk_limit, "Disk")),
        row("Space", broker.disk_text || "–"),
        row("Disk of the queues", percent(broker.queue_disk_used)),
        row("Not yet dispatched to queues", bytes(broker.dispatch_behind)),
        row("Not yet on disk", `${broker.to_flush || "–"} (${broker.flush})`),
        row("Append latency, p99", broker.latency_99 ? `${broker.latency_99} ms` : "–"),
        row("Up since", when(broker.boot_ms))))));
  };
}

function row(title, text, drawing) {
  return [h("dt", {}, title), h("dd", {}, text, drawing || null)];
}

export const PAGES = [
  { path: /^\/$/, title: "Cluster", open: openCluster },
  { path: /^\/topics$/, title: "Topics", open: openTopics },
  { path: /^\/topics\/([^/]+)$/, title: "Topic", open: openTopic },
  { path: /^\/groups$/, title: "Groups", open: openGroups },
  { path: /^\/groups\/([^/]+)$/, title: "Group", open: openGroup },
  { path: /^\/messages$/, title: "Messages", open: openMessages, live: false },
  { path: /^\/store$/, title: "Store", open: openStore },
];
