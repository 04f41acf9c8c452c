// Sparklines, charts and the map of the cluster, as SVG.
import { bytes, count, h, percent, span, svg, tone } from "./dom.js";

// Values oldest first, null for unknown; screen readers read `what`.
export function spark(values, kind, what) {
  const known = values.filter((value) => value !== null);
  const top = Math.max(1e-9, ...known), width = 130, height = 26;
  const step = width / Math.max(1, Math.max(values.length, 30) - 1);
  const from = width - step * (values.length - 1);
  const runs = split(values.map((value, at) => value === null ? null : [from + at * step, height - 2 - value / top * (height - 5)]));
  const last = known.length ? count(known[known.length - 1]) : "unknown";
  return svg("svg", { class: `spark ${kind}`, viewBox: `0 0 ${width} ${height}`, role: "img", preserveAspectRatio: "none",
    "aria-label": `${what}: ${last}, at most ${known.length ? count(top < 1e-6 ? 0 : top) : "unknown"}` },
  runs.map((run) => shape(run, height - 1)));
}

function split(points) {
  const runs = [[]];
  for (const point of points) {
    if (point === null) runs.push([]);
    else runs[runs.length - 1].push(point);
  }
  return runs.filter((run) => run.length);
}

function shape(run, bottom) {
  const text = run.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
  const [first, last] = [run[0][0].toFixed(1), run[run.length - 1][0].toFixed(1)];
  return [svg("polygon", { class: "series-area", points: `${first},${bottom} ${text} ${last},${bottom}` }),
    svg("polyline", { class: "series-line", points: text })];
}

// The choice of the time that a chart shows, in minutes.
export function rangeSelect(changed) {
  const ranges = [["5", "5 min"], ["15", "15 min"], ["30", "30 min"], ["60", "1 h"], ["360", "6 h"]];
  return h("select", { "aria-label": "Time range", onchange: changed, "data-key": "range" },
    ranges.map(([value, text]) => h("option", { value, selected: value === "30" }, text)));
}

// points: [[ms, value or null], ...] oldest first
export function chart(points, kind, what) {
  const width = 1200, height = 230, left = 62, right = 14, top = 12, bottom = 28;
  const known = points.filter((point) => point[1] !== null);
  if (known.length < 2) return svg("svg", { viewBox: `0 0 ${width} 40`, role: "img", "aria-label": `${what}: not enough data yet` },
    svg("text", { x: 8, y: 24, class: "dim" }, "Waiting for a second sample …"));
  const begin = points[0][0], end = points[points.length - 1][0];
  const ceiling = nice(Math.max(1, ...known.map((point) => point[1])));
  const x = (ms) => left + (ms - begin) / Math.max(1, end - begin) * (width - left - right);
  const y = (value) => height - bottom - value / ceiling * (height - top - bottom);
  const lines = [0, 0.25, 0.5, 0.75, 1].map((part) => [
    svg("line", { class: "grid", x1: left, x2: width - right, y1: y(part * ceiling), y2: y(part * ceiling) }),
    svg("text", { class: "dim", x: left - 8, y: y(part * ceiling) + 4, "text-anchor": "end" }, count(part * ceiling))]);
  const times = [0, 0.25, 0.5, 0.75, 1].map((part) => svg("text", { class: "dim", x: left + part * (width - left - right),
    y: height - 8, "text-anchor": part === 0 ? "start" : part === 1 ? "end" : "middle" }, clock(begin + part * (end - begin))));
  const runs = split(points.map((point) => point[1] === null ? null : [x(point[0]), y(point[1])]));
  const values = known.map((point) => point[1]);
  return svg("svg", { class: `chart ${kind}`, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `${what}, ${span((end - begin) / 1000)}: from ${count(values[0])} to ${count(values[values.length - 1])}, ` +
      `at most ${count(Math.max(...values))}` },
  lines, times, runs.map((run) => shape(run, height - bottom)));
}

function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 5, 8, 10].map((step) => step * power).find((step) => step >= value);
}

function clock(ms) {
  return new Date(ms).toLocaleTimeString("en-GB");
}

const BOX = { width: 300, height: 96 };
const LINK = 330;

// Each master with its slaves; a working link is animated, a broken one is dotted.
export function clusterMap(cluster) {
  const brokers = new Map(cluster.brokers.map((broker) => [broker.address, broker]));
  const parts = [];
  let y = 14;
  for (const each of cluster.replication) {
    const rows = Math.max(1, each.slaves.length), tall = rows * (BOX.height + 18);
    const middle = y + tall / 2 - 9;
    parts.push(each.slaves.map((slave, number) => {
      const at = y + number * (BOX.height + 18) + BOX.height / 2;
      return [connection(slave, middle, at), node(brokers.get(slave.address), slave, cluster.lines,
        20 + BOX.width + LINK, at - BOX.height / 2)];
    }));
    if (!each.slaves.length) parts.push(svg("text", { class: "dim", x: 40 + BOX.width, y: middle + 4 }, "no slave"));
    parts.push(node(brokers.get(each.master), null, cluster.lines, 20, middle - BOX.height / 2, each.name));
    y += tall + 16;
  }
  const width = 40 + 2 * BOX.width + LINK;
  const summary = cluster.replication.map((each) => `${each.name}: ` + (each.slaves.map((slave) =>
    `slave ${slave.address} ${slave.state}, lag ${bytes(slave.lag_bytes)}`).join("; ") || "no slave")).join(". ");
  return svg("svg", { class: "map", viewBox: `0 0 ${width} ${Math.max(60, y - 22)}`, role: "img", "aria-label": `Replication. ${summary}` },
    parts);
}

function connection(slave, from, to) {
  const x1 = 20 + BOX.width, x2 = x1 + LINK, kind = tone(slave.status), works = kind === "good";
  const label = slave.lag_bytes === null ? slave.state : `lag ${bytes(slave.lag_bytes)}` +
    (slave.lag_bytes && slave.lag_seconds !== null ? ` · ${span(slave.lag_seconds)}` : "");
  return [
    svg("path", { class: `link ${kind} ${works ? "flows" : "broken"}`,
      d: `M${x1},${from} C${x1 + LINK / 2},${from} ${x1 + LINK / 2},${to} ${x2},${to}` }),
    svg("text", { class: "strong", x: x1 + LINK / 2, y: (from + to) / 2 - 12, "text-anchor": "middle" }, label),
    svg("text", { class: "dim", x: x1 + LINK / 2, y: (from + to) / 2 + 20, "text-anchor": "middle" },
      `${slave.state}${slave.in_sync === false ? " · not in sync" : ""}`),
  ];
}

function node(broker, slave, lines, x, y, name) {
  const known = broker && !broker.error;
  const kind = !known ? "bad" : slave ? tone(slave.status) : "good";
  const title = broker ? `${broker.name} · ${broker.broker_id}` : (name || slave?.address || "?");
  const text = (dx, dy, content, attributes = {}) => svg("text", { x: x + dx, y: y + dy, ...attributes }, content);
  const parts = [svg("rect", { class: `node ${kind}`, x, y, width: BOX.width, height: BOX.height, rx: 9 }),
    text(14, 24, title, { class: "strong" }),
    text(BOX.width - 14, 24, broker ? (broker.role || "").replace("_", " ").toLowerCase() : "not registered",
      { class: "dim", "text-anchor": "end" }),
    text(14, 43, broker ? broker.address : slave ? slave.address : "no master", { class: "dim" })];
  if (!known) {
    parts.push(text(14, 68, "no answer", { class: "strong" }));
    return parts;
  }
  const line = slave ? lines.log[broker.address] : lines.in[broker.address];
  const rate = slave ? `${bytes(broker.log_bytes_per_s)}/s` : `in ${count(broker.in_msgs_per_s)}/s  out ${count(broker.out_msgs_per_s)}/s`;
  parts.push(text(14, 64, rate), text(14, 83, `log ${bytes(broker.log_size)}, disk ${percent(broker.disk_used)}`, { class: "dim" }));
  const drawn = spark(line || [], "in", slave ? "log bytes per second" : "messages in per second");
  for (const [key, value] of Object.entries({ x: x + BOX.width - 138, y: y + 56, width: 124, height: 30 })) drawn.setAttribute(key, value);
  drawn.removeAttribute("class");
  drawn.setAttribute("class", "in");
  return [...parts, drawn];
}

// used, limit: 0 to 1 or null
export function diskBar(used, limit, what) {
  const kind = limit !== null && used > limit ? "bad" : limit !== null && used > limit - 0.1 ? "warn" : "good";
  return svg("svg", { viewBox: "0 0 400 22", role: "img", width: 400, height: 22, "aria-label": `${what}: ${percent(used)} used` },
    svg("rect", { class: "bar-back", x: 0.5, y: 3.5, width: 399, height: 15, rx: 4 }),
    svg("rect", { class: `fill-${kind}`, x: 1, y: 4, width: Math.max(0, 398 * used), height: 14, rx: 3 }),
    limit === null ? null : svg("line", { class: "bar-limit", x1: 399 * limit, x2: 399 * limit, y1: 0, y2: 22 }));
}

// The files of a log, the newest on the right; the last one is filled up to its written part.
export function segmentStrip(broker) {
  const most = 48, shown = Math.min(most, broker.segments), size = broker.file_size;
  if (!shown) return svg("svg", { viewBox: "0 0 400 22", role: "img", "aria-label": "no files" });
  const width = Math.min(60, 398 / shown), first = Math.floor((broker.max_offset - 1) / size) - shown + 1;
  return svg("svg", { viewBox: "0 0 400 22", role: "img", width: 400, height: 22, "aria-label": `${broker.segments} files of ${bytes(size)}` },
    Array.from({ length: shown }, (_, number) => {
      const begin = (first + number) * size;
      const part = Math.min(1, (broker.max_offset - begin) / size), from = Math.max(0, (broker.min_offset - begin) / size);
      const x = 1 + number * width;
      return [svg("rect", { class: "segment rest", x, y: 3, width: Math.max(1, width - 2), height: 16, rx: 2 }),
        svg("rect", { class: "segment", x: x + from * (width - 2), y: 3, width: Math.max(1, (part - from) * (width - 2)), height: 16, rx: 2 })];
    }));
}
