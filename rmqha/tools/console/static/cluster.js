// The cluster: its problems, rates, replication and brokers; one broker name's settings and stores.
import { chart, clusterMap, diskBar, rangeSelect, segmentStrip, spark } from "./charts.js";
import {
  badge, bytes, card, command, confirmed, count, emptyState, field, filterField, form, forRole, frame, h, link, percent, replace, select, span,
  table, tone, troubles, warnings, when, whole,
} from "./dom.js";
import { tile } from "./topics.js";

const CHARTS = [["in", "Messages in / s", "in"], ["out", "Messages out / s", "out"], ["behind", "Unread messages and retries, all groups", "backlog"]];

export function openCluster({ api, session, root, again }) {
  const [live, charts] = frame(root, h("div", {}), h("div", {}));
  const kind = h("select", { "aria-label": "What the chart shows", onchange: again, "data-key": "kind" }, CHARTS.map(([value, text]) => h("option", { value }, text)));
  const range = rangeSelect(again);
  return async () => {
    const cluster = await api.get("/api/cluster");
    if (!cluster.brokers.length) {
      replace(live, emptyState("No broker is registered at the name server.", ["Start one: ", command(`mqbroker -n ${session.namesrv || "HOST:9876"}`)],
        "A broker registers within 30 s of its start."));
      return;
    }
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
        tile("Unread messages and retries, all groups", count(cluster.unread), cluster.lines.behind[""], "backlog"),
        tile("Largest replication lag", lags.length ? bytes(Math.max(...lags)) : "–")),
      card("Replication", clusterMap(cluster)),
      card("Brokers", table("brokers", [
        { title: "Broker", cell: (row) => link("brokers", row.name), value: (row) => row.name },
        { title: "Id", right: true, cell: (row) => String(row.broker_id), value: (row) => row.broker_id },
        { title: "Address", cell: (row) => row.address, value: (row) => row.address },
        { title: "Role", cell: (row) => row.error ? badge("no answer", "bad") : row.epoch == null ? row.role : `${row.role}, epoch ${row.epoch}`, value: (row) => row.role },
        { title: "In / s", right: true, cell: (row) => count(row.in_msgs_per_s), value: (row) => row.in_msgs_per_s },
        { title: "", cell: (row) => spark(cluster.lines.in[row.address] || [], "in", "messages in per second") },
        { title: "Out / s", right: true, cell: (row) => count(row.out_msgs_per_s), value: (row) => row.out_msgs_per_s },
        { title: "", cell: (row) => spark(cluster.lines.out[row.address] || [], "out", "messages out per second") },
        { title: "Put p99", right: true, cell: (row) => row.p99_ms === null ? "–" : `${row.p99_ms} ms`, value: (row) => row.p99_ms },
        { title: "Log", right: true, cell: (row) => row.error ? "–" : bytes(row.log_size), value: (row) => row.log_size },
        { title: "Disk", right: true, cell: (row) => percent(row.disk_used), value: (row) => row.disk_used },
        { title: "Version", cell: (row) => row.version, value: (row) => row.version },
      ], cluster.brokers, "", again)),
      card("Slaves", table("slaves", [
        { title: "Of", cell: (row) => link("brokers", row.of), value: (row) => row.of },
        { title: "Address", cell: (row) => row.address, value: (row) => row.address },
        { title: "State", cell: (row) => badge(row.state, tone(row.status)), value: (row) => row.state },
        { title: "Lag", right: true, cell: (row) => bytes(row.lag_bytes), value: (row) => row.lag_bytes },
        { title: "", cell: (row) => spark(cluster.lines.lag[row.address] || [], "lag", "lag in bytes") },
        { title: "Lag time", right: true, cell: (row) => span(row.lag_seconds), value: (row) => row.lag_seconds },
        { title: "In sync", cell: (row) => row.in_sync === null ? "?" : row.in_sync ? "yes" : "no", value: (row) => String(row.in_sync) },
      ], slaves, "No slaves: if a master's disk is lost, so are its messages.", again)),
      h("p", { class: "dim" }, `Name servers: ${cluster.name_servers.map((each) => `${each.address} ${each.error ? "(no answer)" : ""}`).join(", ")}`));
    const history = await api.get(`/api/history?${new URLSearchParams({ kind: kind.value, minutes: range.value })}`);
    const [, text, colour] = CHARTS.find(([value]) => value === kind.value);
    replace(charts, h("section", { class: "card" }, h("h2", { class: "with-choice" }, kind, range), chart(history.points, colour, text)));
  };
}

export function openStore({ api, root }) {
  const [live] = frame(root, h("div", { class: "columns wide" }));
  return async () => {
    const { at_ms: now, brokers } = await api.get("/api/store");
    replace(live, brokers.length ? brokers.map((broker) => storeCard(broker, now)) : emptyState("No broker is registered."));
  };
}

function storeCard(broker, now) {
  return card(h("span", {}, link("brokers", broker.name), ` · ${broker.broker_id} · ${broker.address}`),
    broker.error ? h("p", {}, badge("no answer", "bad"), ` ${broker.error}`) : h("dl", {},
      pair("Files of the log", `${whole(broker.segments)} of ${bytes(broker.file_size)}`, segmentStrip(broker)),
      pair("Log", `${whole(broker.min_offset)} to ${whole(broker.max_offset)}, ${bytes(broker.log_size)}, grows by ${bytes(broker.log_bytes_per_s)} / s`),
      pair("Oldest message", broker.earliest_ms > 0 ? `${when(broker.earliest_ms)}, ${span((now - broker.earliest_ms) / 1000)} ago` : "–"),
      pair("Disk of the log", `${percent(broker.disk_used)} used${broker.disk_limit === null ? "" : `, files are deleted early above ${percent(broker.disk_limit)}`}`,
        broker.disk_used === null ? null : diskBar(broker.disk_used, broker.disk_limit, "Disk")),
      pair("Space", broker.disk_text || "–"),
      pair("Disk of the queues", percent(broker.queue_disk_used)),
      pair("Not yet dispatched to queues", bytes(broker.dispatch_behind)),
      pair("Not yet on disk", `${broker.to_flush || "–"} (${broker.flush})`),
      pair("Append latency, p99", broker.p99_ms === null ? "–" : `${broker.p99_ms} ms`),
      pair("Up since", when(broker.boot_ms))));
}

function pair(title, text, drawing) {
  return [h("dt", {}, title), h("dd", {}, text, drawing || null)];
}

// ---- settings, side by side

export function openBroker({ api, session, root, name, again }) {
  const filter = filterField("Key contains", again), only = h("select", { onchange: again, "data-key": "only" },
    h("option", { value: "differs" }, "only differences"), h("option", { value: "all" }, "all keys"));
  const live = h("div", { class: "card" }), store = h("div", { class: "columns wide" }), note = h("div", {});
  frame(root, store, h("h2", {}, "Settings"), h("form", { class: "bar", onsubmit: (event) => event.preventDefault() }, filter, h("label", {}, "Show", only)), note, live,
    card("Change a setting while the broker runs", forRole(session, "administer", "Changing a setting", () => form([
      field("Key", { name: "key", required: true, size: 28 }), field("Value", { name: "value", size: 20 })], "Change", async (values) => {
      const base = `/api/brokers/${encodeURIComponent(name)}/config`;
      const { results } = await api.post(base, { ...values, dry_run: true });
      if (!await confirmed(`Change ${values.key}?`, results.map((each) => `${each.address}: ${each.before ?? "unset"} → ${each.after}${each.error ? ` (${each.error})` : ""}`), "Change")) return "Nothing was changed.";
      const done = await api.post(base, { ...values, dry_run: false });
      again();
      return done.results.map((each) => h("span", {}, badge(each.error ? `${each.address}: ${each.error}` : `${each.address}: ${each.before ?? "unset"} → ${each.after}`, each.error ? "bad" : "good"), " "));
    }))),
    card("Write permission", forRole(session, "administer", "Changing the write permission", () => form([
      select("Producers may send to this broker", "allow", [["no", "no"], ["yes", "yes"]], "no")], "Change", async (values) => {
      if (!await confirmed(`Write permission of ${name}?`, [values.allow === "yes" ? "Producers send to it again." : "Producers send to the other brokers from their next route update on, at most 30 s later."], "Change")) return "Nothing was changed.";
      return (await api.post(`/api/brokers/${encodeURIComponent(name)}/write-permission`, { allow: values.allow === "yes" })).done;
    }))));
  return async () => {
    const [{ at_ms: now, brokers }, config] = await Promise.all([api.get("/api/store"), api.get(`/api/brokers/${encodeURIComponent(name)}/config`)]);
    replace(store, brokers.filter((broker) => broker.name === name).map((broker) => storeCard(broker, now)));
    replace(note, warnings(config.errors));
    replace(live, configTable("config", config, filter.querySelector("input").value, only.value === "all", again));
  };
}

export function openConfig({ api, root, again }) {
  const filter = filterField("Key contains", again), live = h("div", { class: "card" }), note = h("div", {});
  frame(root, h("p", { class: "dim" }, "Settings in which the brokers of the cluster differ, and settings that differ from the brokers' files. ",
    "What must differ, such as names and addresses, is not shown."),
  h("form", { class: "bar", onsubmit: (event) => event.preventDefault() }, filter), note, live);
  return async () => {
    const config = await api.get("/api/config/diff");
    replace(note, warnings(config.errors));
    replace(live, configTable("diff", config, filter.querySelector("input").value, false, again));
  };
}

function configTable(id, config, text, all, again) {
  const rows = config.rows.filter((row) => row.key.toLowerCase().includes(text.trim().toLowerCase()) && (all || row.differs));
  return table(id, [
    { title: "Key", name: true, cell: (row) => h("span", { class: "mono", title: row.meaning || null }, row.key), value: (row) => row.key },
    ...config.brokers.map((broker) => ({ title: `${broker.name} ${broker.broker_id}`, name: true, cell: (row) => {
      const value = row.values[broker.address], file = row.files[broker.address];
      return [h("span", { class: "mono" }, value ?? "–"), file === undefined ? null : h("small", { class: "dim" }, ` file: ${file ?? "not set"}`)];
    } })),
    { title: "", cell: (row) => row.expected ? badge("may differ") : row.differs ? badge("differs", "warn") : "" },
    { title: "Meaning", name: true, cell: (row) => h("span", { class: "dim" }, row.meaning || "") },
  ], rows, emptyState(all || config.rows.length ? "No key matches." : "No setting differs."), again);
}
