"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
const COLOURS = 8;
const whole = { from: data.slotBegin, to: data.slotBegin + Math.max(1, data.slots.messages.length) * data.slotMs };
const state = { ...whole, utc: false, theme: "", rate: "messages", scale: {}, hidden: {} };
// Functions that draw again when the state changes.
const drawn = [];

// -- words and numbers --

function trim(value, digits = 3) {
  return String(Number(value.toPrecision(digits)));
}

function count(value) {
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]])
    if (Math.abs(value) >= size) return `${trim(value / (unit === "k" ? 1e3 : size))} ${unit}`;
  return Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en-US") : trim(value);
}

function exact(value) {
  return value.toLocaleString("en-US");
}

function bytes(value) {
  for (const [power, unit] of [[5, "PiB"], [4, "TiB"], [3, "GiB"], [2, "MiB"], [1, "KiB"]])
    if (Math.abs(value) >= 1024 ** power) return `${trim(value / 1024 ** power)} ${unit}`;
  return `${trim(value)} B`;
}

function span(ms) {
  if (ms === null) return "unknown";
  if (ms < 0) return `-${span(-ms)}`;
  if (ms < 1) return "< 1 ms";
  for (const [size, unit] of [[DAY, "d"], [HOUR, "h"], [MINUTE, "min"], [SECOND, "s"], [1, "ms"]])
    if (ms >= size) return `${trim(ms / size)} ${unit}`;
  return `${ms} ms`;
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const two = (number) => String(number).padStart(2, "0");

// The parts of a time in the zone that is shown.
function parts(ms) {
  const at = new Date(ms - (state.utc ? 0 : new Date(ms).getTimezoneOffset() * MINUTE));
  return { year: at.getUTCFullYear(), month: MONTHS[at.getUTCMonth()], day: at.getUTCDate(), hour: at.getUTCHours(),
    minute: at.getUTCMinutes(), second: at.getUTCSeconds() };
}

function day(ms) {
  const at = parts(ms);
  return `${at.day} ${at.month} ${at.year}`;
}

function clock(ms, seconds) {
  const at = parts(ms);
  return `${two(at.hour)}:${two(at.minute)}${seconds ? `:${two(at.second)}` : ""}`;
}

const moment = (ms) => ms === null || ms === undefined ? "unknown" : `${day(ms)} ${clock(ms, true)}`;

function zone() {
  if (state.utc) return "UTC";
  const minutes = -new Date(state.from).getTimezoneOffset();
  return minutes === 0 ? "UTC"
    : `UTC${minutes < 0 ? "-" : "+"}${two(Math.floor(Math.abs(minutes) / 60))}:${two(Math.abs(minutes) % 60)}`;
}

// -- elements --

function make(space, name, attributes, children) {
  const node = space ? document.createElementNS(space, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}
const el = (name, attributes, ...children) => make(null, name, attributes, children);
const svg = (name, attributes, ...children) => make("http://www.w3.org/2000/svg", name, attributes, children);

function section(id, title, controls, ...content) {
  return el("section", { id, "aria-labelledby": `${id}-title` },
    el("div", { class: "title" }, el("h2", { id: `${id}-title` }, title), controls), content);
}

// A group of buttons, one of them pressed. `choices`: [[value, text], ...]
function choice(label, choices, get, set) {
  const buttons = choices.map(([value, text]) => el("button", { type: "button", onclick: () => { set(value); redraw(); } }, text));
  drawn.push(() => buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(get() === choices[at][0]))));
  return el("span", { class: "choice", role: "group", "aria-label": label }, buttons);
}

const scaleChoice = (id) => choice("scale", [["linear", "linear"], ["log", "log"]], () => state.scale[id],
  (value) => { state.scale[id] = value; });

const tip = el("div", { id: "tip", hidden: true });

function showTip(event, ...content) {
  tip.replaceChildren(...content.flat(Infinity));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - box.width - 8)}px`;
  tip.style.top = `${Math.min(event.clientY + 14, innerHeight - box.height - 8)}px`;
}

// -- axes --

const TIME_STEPS = [1, 2, 5, 10, 15, 30].map((n) => n * SECOND).concat([1, 2, 5, 10, 15, 30].map((n) => n * MINUTE),
  [1, 2, 3, 6, 12].map((n) => n * HOUR), [1, 2, 7, 14, 28, 91, 364, 1820, 3640, 36400].map((n) => n * DAY));

// [[ms, first line, second line], ...]: the second has the date where it begins.
function timeTicks(from, to, most) {
  const step = TIME_STEPS.find((each) => (to - from) / each <= most) || TIME_STEPS[TIME_STEPS.length - 1];
  const shift = state.utc ? 0 : new Date(from).getTimezoneOffset() * MINUTE;
  const ticks = [];
  let last = "";
  for (let at = Math.ceil((from - shift) / step) * step + shift; at <= to; at += step) {
    const date = day(at);
    if (step >= DAY) ticks.push([at, `${parts(at).day} ${parts(at).month}`, String(parts(at).year) === last ? "" : String(parts(at).year)]);
    else ticks.push([at, clock(at, step < MINUTE), date === last ? "" : date]);
    last = step >= DAY ? String(parts(at).year) : date;
  }
  return ticks;
}

function niceStep(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= value * 0.999999);
}

const SPANS = [1, 10, 100, SECOND, 10 * SECOND, MINUTE, 10 * MINUTE, HOUR, 10 * HOUR, DAY, 10 * DAY, 100 * DAY, 1000 * DAY];
const FINE_SPANS = [1, 2, 5, 10, 20, 50, 100, 200, 500].concat([1, 2, 5, 10, 20, 30].map((n) => n * SECOND),
  [1, 2, 5, 10, 20, 30].map((n) => n * MINUTE), [1, 2, 5, 10].map((n) => n * HOUR), [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].map((n) => n * DAY));
const decades = (steps, base, from, to) => Array.from({ length: to - from }, (_, at) => steps.map((step) => step * base ** (from + at))).flat();
// The units of an axis: the text of a value, and the lines of a logarithmic axis, coarse and fine.
const UNITS = {
  count: { say: count, base: 1, rough: decades([1], 10, -6, 16), fine: decades([1, 2, 5], 10, -6, 16) },
  bytes: { say: bytes, base: 1024, rough: decades([1, 10, 100], 1024, 0, 6), fine: decades([1, 2, 5, 10, 20, 50, 100, 200, 500], 1024, 0, 6) },
  span: { say: span, base: 1, rough: SPANS, fine: FINE_SPANS },
};

// {place(value): 0 to 1, ticks: [value, ...]}. A value below the first line of a logarithmic axis is drawn at its foot.
function axis(values, unit, kind) {
  const known = values.filter((value) => value !== null && value > 0);
  const top = known.length ? Math.max(...known) : 1;
  if (kind === "log") {
    const least = known.length ? Math.min(...known) : 1, { rough, fine } = UNITS[unit];
    const all = top / least > 200 ? rough : fine;
    const first = Math.max(0, all.findLastIndex((tick) => tick <= least));
    const last = Math.max(first + 1, all.findIndex((tick) => tick >= top));
    const ticks = all.slice(first, last < first + 2 ? first + 2 : last + 1);
    const low = Math.log(ticks[0]) - 0.12, high = Math.max(Math.log(top), Math.log(ticks[ticks.length - 1]));
    return { ticks, place: (value) => value <= 0 ? 0 : Math.max(0, (Math.log(value) - low) / (high - low)) };
  }
  const scale = UNITS[unit].base > 1 ? 1024 ** Math.max(0, Math.floor(Math.log(top) / Math.log(1024)))
    : unit === "span" ? [DAY, HOUR, MINUTE, SECOND, 1].find((each) => top >= each) || 1 : 1;
  const step = niceStep(top / scale / 5) * scale, high = Math.ceil(top / step - 1e-9) * step;
  return { ticks: Array.from({ length: Math.round(high / step) + 1 }, (_, at) => at * step), place: (value) => Math.max(0, value / high) };
}

// -- charts over time --

const BOX = { width: 1140, height: 320, left: 92, right: 42, top: 14, bottom: 58 };

function timeAxis(x, bottom, box) {
  return [
    timeTicks(state.from, state.to, (box.width - box.left - box.right) / 95).map(([at, first, second]) => [
      svg("line", { class: "grid", x1: x(at), x2: x(at), y1: box.top, y2: bottom }),
      svg("text", { class: "dim", x: x(at), y: bottom + 17, "text-anchor": "middle" }, first),
      second ? svg("text", { x: x(at), y: bottom + 33, "text-anchor": "middle" }, second) : null]),
    svg("text", { class: "axis", x: box.width - box.right, y: bottom + 50, "text-anchor": "end" }, `time (${zone()})`)];
}

// A range selected with the pointer is shown in all charts.
function zoomable(root, box, onPoint) {
  const at = (event) => {
    const place = root.getBoundingClientRect();
    const x = (event.clientX - place.left) / place.width * box.width;
    const part = (x - box.left) / (box.width - box.left - box.right);
    return { x: Math.max(box.left, Math.min(box.width - box.right, x)),
      ms: state.from + Math.max(0, Math.min(1, part)) * (state.to - state.from) };
  };
  let begun = null, pick = null;
  root.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    begun = at(event);
    if (event.isTrusted) root.setPointerCapture(event.pointerId);
  });
  root.addEventListener("pointermove", (event) => {
    const now = at(event);
    onPoint(event, now.ms);
    if (begun === null) return;
    pick = pick || root.appendChild(svg("rect", { class: "pick", y: box.top, height: box.height - box.top - box.bottom }));
    pick.setAttribute("x", Math.min(begun.x, now.x));
    pick.setAttribute("width", Math.abs(begun.x - now.x));
  });
  root.addEventListener("pointerup", (event) => {
    const from = begun, now = at(event);
    begun = null;
    if (pick) pick.remove();
    pick = null;
    if (from !== null && Math.abs(now.x - from.x) > 6) zoom(Math.min(from.ms, now.ms), Math.max(from.ms, now.ms));
  });
  root.addEventListener("pointerleave", () => { tip.hidden = true; onPoint(null); });
  root.addEventListener("dblclick", () => zoom(whole.from, whole.to));
}

// describe(): {unit, label, series: [{name, values, colour}]}; values: a number or null for each slot.
function lineChart(id, title, describe, controls, ...notes) {
  const holder = el("div"), legend = el("div", { class: "legend" });
  state.hidden[id] = new Set();
  drawn.push(() => {
    const chart = describe(), box = BOX, bottom = box.height - box.bottom;
    const first = Math.max(0, Math.floor((state.from - data.slotBegin) / data.slotMs));
    const last = Math.min(data.slots.messages.length, Math.ceil((state.to - data.slotBegin) / data.slotMs));
    const shown = chart.series.filter((each) => !state.hidden[id].has(each.name));
    const scale = axis(shown.flatMap((each) => each.values.slice(first, last)), chart.unit, state.scale[id]);
    const x = (ms) => box.left + (ms - state.from) / (state.to - state.from) * (box.width - box.left - box.right);
    const y = (value) => bottom - Math.min(1, scale.place(value)) * (bottom - box.top);
    const middle = (slot) => data.slotBegin + (slot + 0.5) * data.slotMs;
    const clip = `clip-${id}`;
    const root = svg("svg", { class: "timed", viewBox: `0 0 ${box.width} ${box.height}`, role: "img",
      "aria-label": `${title}, ${chart.label}, ${moment(state.from)} to ${moment(state.to)}` },
    svg("clipPath", { id: clip }, svg("rect", { x: box.left, y: box.top - 4, width: box.width - box.left - box.right, height: bottom - box.top + 6 })),
    scale.ticks.map((tick) => [svg("line", { class: "grid", x1: box.left, x2: box.width - box.right, y1: y(tick), y2: y(tick) }),
      svg("text", { class: "dim", x: box.left - 8, y: y(tick) + 4, "text-anchor": "end" }, UNITS[chart.unit].say(tick))]),
    timeAxis(x, bottom, box),
    svg("line", { class: "frame", x1: box.left, x2: box.width - box.right, y1: bottom, y2: bottom }),
    svg("text", { class: "axis", transform: `translate(16 ${(box.top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, chart.label),
    svg("g", { "clip-path": `url(#${clip})` }, shown.map((each) => runs(each.values, Math.max(0, first - 1), last + 1).map((run) =>
      run.length === 1
        ? svg("circle", { cx: x(middle(run[0][0])).toFixed(1), cy: y(run[0][1]).toFixed(1), r: 3, fill: each.colour })
        : svg("polyline", { class: "line", stroke: each.colour,
          points: run.map(([slot, value]) => `${x(middle(slot)).toFixed(1)},${y(value).toFixed(1)}`).join(" ") })))));
    const cross = root.appendChild(svg("line", { class: "cross", y1: box.top, y2: bottom, visibility: "hidden" }));
    zoomable(root, box, (event, ms) => {
      const slot = event && Math.floor((ms - data.slotBegin) / data.slotMs);
      cross.setAttribute("visibility", event ? "visible" : "hidden");
      if (!event || slot < 0 || slot >= data.slots.messages.length) return;
      cross.setAttribute("x1", x(middle(slot)));
      cross.setAttribute("x2", x(middle(slot)));
      const begin = data.slotBegin + slot * data.slotMs;
      showTip(event, el("div", { class: "dim" }, `${moment(begin)}, ${span(data.slotMs)} on`),
        shown.filter((each) => each.values[slot] !== null).map((each) => el("div", {}, swatch(each.colour),
          `${each.name}: ${UNITS[chart.unit].say(each.values[slot])}${chart.per || ""}`)));
    });
    holder.replaceChildren(root);
    legend.replaceChildren(...chart.series.map((each) => el("button", { type: "button", title: each.name,
      "aria-pressed": String(!state.hidden[id].has(each.name)),
      onclick: () => {
        if (!state.hidden[id].delete(each.name)) state.hidden[id].add(each.name);
        redraw();
      } }, swatch(each.colour), each.name)));
  });
  return section(id, title, [controls, scaleChoice(id)], notes.map((note) => el("p", { class: "note" }, note)), holder, legend);
}

const swatch = (colour) => el("span", { class: "swatch", style: `background: ${colour}` });

// Pieces without nulls: [[slot, value], ...]
function runs(values, first, last) {
  const found = [[]];
  for (let slot = first; slot < Math.min(last, values.length); slot++) {
    if (values[slot] === null) found.push([]);
    else found[found.length - 1].push([slot, values[slot]]);
  }
  return found.filter((run) => run.length);
}

function rates() {
  const perSecond = (values) => values.map((value) => value * SECOND / data.slotMs);
  if (state.rate === "bytes") return { unit: "bytes", label: "bytes of log per second", per: "/s",
    series: [{ name: "all topics", values: perSecond(data.slots.bytes), colour: "var(--s0)" }] };
  const named = data.topics.slice(0, COLOURS).map((each, at) => ({ name: each.topic, values: perSecond(each.slots), colour: `var(--s${at})` }));
  const rest = data.topicCount - named.length;
  if (rest > 0) {
    const others = data.slots.messages.map((all, slot) => data.topics.slice(0, COLOURS).reduce((left, each) => left - each.slots[slot], all));
    named.push({ name: `${exact(rest)} other topics`, values: perSecond(others), colour: "var(--s8)" });
  }
  return { unit: "count", label: "messages per second", per: "/s", series: named };
}

function latencies() {
  const names = [["p50", "median (p50)", 2], ["p90", "p90", 0], ["p99", "p99", 1], ["max", "maximum", 8]];
  return { unit: "span", label: "latency from client to store",
    series: names.map(([key, name, colour]) => ({ name, values: data.slots[key], colour: `var(--s${colour})` })) };
}

// -- the heat map --

function heatMap() {
  const holder = el("div"), step = data.heatMs / data.slotMs;
  const begin = Math.floor(data.slotBegin / data.heatMs) * data.heatMs;
  const rows = data.topics.map((each) => {
    const cells = new Map();
    each.slots.forEach((value, slot) => {
      const column = Math.floor((data.slotBegin + slot * data.slotMs - begin) / data.heatMs);
      if (value) cells.set(column, (cells.get(column) || 0) + value);
    });
    return [each.topic, cells];
  });
  drawn.push(() => {
    const box = { ...BOX, left: 210, top: 6, height: 6 + rows.length * 19 + 58 }, bottom = box.height - box.bottom;
    const x = (ms) => box.left + (ms - state.from) / (state.to - state.from) * (box.width - box.left - box.right);
    const visible = ([column]) => begin + (column + 1) * data.heatMs > state.from && begin + column * data.heatMs < state.to;
    const top = Math.max(1, ...rows.map(([, cells]) => Math.max(0, ...[...cells].filter(visible).map((cell) => cell[1]))));
    const shade = (value) => state.scale.heat === "log" ? 0.1 + 0.9 * Math.log(value) / Math.max(Math.log(top), 1e-9) : Math.max(0.04, value / top);
    const root = svg("svg", { class: "timed", viewBox: `0 0 ${box.width} ${box.height}`, role: "img",
      "aria-label": `Messages of the ${rows.length} busiest topics, ${span(data.heatMs)} per column` },
    timeAxis(x, bottom, box),
    rows.map(([topic, cells], row) => [
      svg("text", { x: box.left - 8, y: box.top + row * 19 + 14, "text-anchor": "end" }, svg("title", {}, topic),
        topic.length > 29 ? `${topic.slice(0, 28)}…` : topic),
      [...cells].filter(visible).map(([column, value]) => {
        const [from, to] = [Math.max(box.left, x(begin + column * data.heatMs)), Math.min(box.width - box.right, x(begin + (column + 1) * data.heatMs))];
        return svg("rect", { class: "cell", x: from.toFixed(1), y: box.top + row * 19 + 1, width: Math.max(0.5, to - from - 0.6).toFixed(1), height: 17,
          "fill-opacity": Math.min(1, shade(value)).toFixed(3) });
      })]),
    svg("line", { class: "frame", x1: box.left, x2: box.width - box.right, y1: bottom, y2: bottom }));
    zoomable(root, box, (event, ms) => {
      if (!event) return;
      const place = root.getBoundingClientRect();
      const row = Math.floor(((event.clientY - place.top) / place.height * box.height - box.top) / 19);
      const column = Math.floor((ms - begin) / data.heatMs);
      if (!rows[row]) return void (tip.hidden = true);
      showTip(event, el("div", { class: "what" }, rows[row][0]), el("div", { class: "dim" }, `${moment(begin + column * data.heatMs)}, ${span(data.heatMs)} on`),
        el("div", {}, `${exact(rows[row][1].get(column) || 0)} messages`));
    });
    const steps = state.scale.heat === "log" ? UNITS.count.rough.filter((value) => value >= 1 && value <= top) : [0.25, 0.5, 0.75, 1].map((part) => Math.ceil(part * top));
    holder.replaceChildren(root, el("div", { class: "legend" }, el("span", { class: "dim" }, `messages in ${span(data.heatMs)}: `),
      [...new Set([...steps, top])].map((value) => el("span", { class: "dim" }, "\u00a0",
        el("span", { class: "swatch", style: `background: var(--heat); opacity: ${Math.min(1, shade(value)).toFixed(3)}` }), count(value)))));
  });
  const which = data.topicCount > rows.length ? `the ${rows.length} busiest of ${exact(data.topicCount)} topics` : "all topics";
  return section("heat", step === 1 && data.heatMs < HOUR ? "Busy times of topics" : `Busy times of topics, by ${data.heatMs === HOUR ? "hour" : span(data.heatMs)}`,
    scaleChoice("heat"), el("p", { class: "note" }, `Each column is ${span(data.heatMs)}; ${which}.`), holder);
}

// -- histograms --

// values: [[lower bound as a power of 2 in parts of 1/steps, messages], ...]; the power is -1 for all values below 1.
function histogram(id, title, values, steps, unit, label, quantiles, ...notes) {
  const holder = el("div");
  drawn.push(() => {
    const box = { width: 560, height: 260, left: 72, right: 12, top: 14, bottom: 62 }, bottom = box.height - box.bottom;
    const scale = axis(values.map((value) => value[1]), "count", state.scale[id]);
    const width = (box.width - box.left - box.right) / Math.max(1, values.length);
    const y = (value) => bottom - Math.min(1, scale.place(value)) * (bottom - box.top);
    const edge = (power) => power < 0 ? "0" : UNITS[unit].say(2 ** (power / steps));
    const every = Math.ceil(values.length / steps / 8) * steps;
    const total = values.reduce((sum, value) => sum + value[1], 0);
    holder.replaceChildren(svg("svg", { viewBox: `0 0 ${box.width} ${box.height}`, role: "img", "aria-label": title },
      scale.ticks.map((tick) => [svg("line", { class: "grid", x1: box.left, x2: box.width - box.right, y1: y(tick), y2: y(tick) }),
        svg("text", { class: "dim", x: box.left - 8, y: y(tick) + 4, "text-anchor": "end" }, count(tick))]),
      values.map(([power, value], at) => [
        svg("rect", { class: "bar", x: (box.left + at * width + 1.5).toFixed(1), width: Math.max(1, width - 3).toFixed(1),
          y: (value ? Math.min(y(value), bottom - 1.5) : bottom).toFixed(1), height: (value ? Math.max(1.5, bottom - y(value)) : 0).toFixed(1),
          onpointermove: (event) => showTip(event, el("div", { class: "what" }, power < 0 ? `below ${UNITS[unit].say(1)}` : `${edge(power)} to ${edge(power + 1)}`),
            el("div", {}, `${exact(value)} messages, ${trim(100 * value / total)} %`)), onpointerleave: () => { tip.hidden = true; } }),
        power < 0 || power % every === 0 ? svg("text", { class: "dim", x: box.left + at * width, y: bottom + 17, "text-anchor": "middle" }, edge(power)) : null]),
      svg("line", { class: "frame", x1: box.left, x2: box.width - box.right, y1: bottom, y2: bottom }),
      svg("text", { class: "axis", x: (box.left + box.width - box.right) / 2, y: bottom + 44, "text-anchor": "middle" }, label),
      svg("text", { class: "axis", transform: `translate(16 ${(box.top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, "messages")));
  });
  const said = quantiles.max === null ? "" : `p50 ${UNITS[unit].say(quantiles.p50)}, p99 ${UNITS[unit].say(quantiles.p99)}, maximum ${UNITS[unit].say(quantiles.max)}.`;
  return section(id, title, scaleChoice(id), el("p", { class: "note" }, said), notes.map((note) => el("p", { class: "note" }, note)), holder);
}

// -- tables --

// columns: [[title, value of a row, text of a value, right?], ...]; `order`: index of the initial sort column.
function table(rows, columns, order, filter) {
  let by = order, down = true, wanted = "";
  const body = el("tbody"), heads = columns.map(([title, , , right], at) => el("th", { class: right ? "right" : null, scope: "col" },
    el("button", { type: "button", onclick: () => { down = by === at ? !down : Boolean(right); by = at; fill(); } }, title)));
  function fill() {
    const value = columns[by][1], sign = down ? -1 : 1;
    const chosen = rows.filter((row) => String(columns[0][1](row)).toLowerCase().includes(wanted));
    const sorted = [...chosen].sort((one, other) => {
      const [a, b] = [value(one), value(other)];
      return sign * (typeof a === "string" ? a.localeCompare(b) : (a ?? -Infinity) - (b ?? -Infinity));
    });
    heads.forEach((head, at) => head.setAttribute("aria-sort", at !== by ? "none" : down ? "descending" : "ascending"));
    body.replaceChildren(...sorted.map((row) => el("tr", {}, columns.map(([, get, say, right], at) =>
      el("td", { class: right ? "right" : at === 0 ? "name" : null }, say(get(row), row))))));
  }
  drawn.push(fill);
  return [filter ? el("input", { type: "search", placeholder: filter, "aria-label": filter, oninput: (event) => { wanted = event.target.value.toLowerCase(); fill(); } }) : null,
    el("table", {}, el("thead", {}, el("tr", {}, heads)), body)];
}

const text = (value) => value === null || value === "" ? el("span", { class: "dim" }, "none") : value;
const right = true;

function topicTable() {
  const listed = data.topics.reduce((sum, each) => sum + each.messages, 0);
  const rest = data.topicCount - data.topics.length;
  return section("topics", "Topics", null,
    table(data.topics, [["topic", (row) => row.topic, text], ["messages", (row) => row.messages, exact, right],
      ["share", (row) => row.messages / data.messages, (value) => `${trim(100 * value)} %`, right],
      ["log", (row) => row.bytes, bytes, right], ["per message", (row) => row.bytes / row.messages, bytes, right],
      ["queues", (row) => row.queues, exact, right], ["first", (row) => row.begin, moment, right], ["last", (row) => row.end, moment, right]],
    1, data.topics.length > 10 ? "find a topic" : null),
    rest > 0 ? el("p", { class: "note" }, `and ${exact(rest)} more topics with ${exact(data.messages - listed)} messages`) : null);
}

function groupTable() {
  if (!data.groupsKnown) return section("groups", "Consumer backlog", null,
    el("p", { class: "note" }, "Unknown: the store has no config/consumerOffset.json."));
  if (!data.backlog.length) return section("groups", "Consumer backlog", null,
    el("p", { class: "note" }, "No group has an offset in any of these topics."));
  const behind = data.backlog.filter((row) => row.messages > 0), rest = data.groupCount - data.backlog.length;
  const age = (row) => row.since === null ? null : data.end - row.since;
  return section("groups", "Consumer backlog", null,
    el("p", { class: "note" }, "From the offsets in the store's config/consumerOffset.json. Waiting: the age of the oldest unconsumed message when the last " +
      "message of this log was stored. Deleted: messages that are no longer in the log, so that the group can't get them."),
    table(data.backlog, [["group", (row) => row.group, text], ["topic", (row) => row.topic, text], ["behind", (row) => row.messages, exact, right],
      ["of these deleted", (row) => row.lost, exact, right], ["waiting", age, (value) => value === null ? "-" : span(value), right],
      ["since", (row) => row.since, (value) => value === null ? "-" : moment(value), right]], 2, data.backlog.length > 10 ? "find a group" : null),
    el("p", { class: "note" }, rest > 0 ? `and ${exact(rest)} more pairs of group and topic with a smaller backlog`
      : behind.length ? "" : "All groups have consumed everything."));
}

function replication() {
  const changes = data.writers.length - 1;
  const parts = [el("p", { class: "note" }, changes > 0 ? `The messages were stored by ${data.writers.length} masters: the master changed, or a broker got another address.`
    : "One master stored all messages."),
  table(data.writers, [["stored by", (row) => row.host, text], ["messages", (row) => row.messages, exact, right], ["first", (row) => row.begin, moment, right],
    ["last", (row) => row.end, moment, right]], 2)];
  if (data.slaves.length) parts.push(table(data.slaves, [["slave", (row) => row.store, text], ["lacks", (row) => row.bytes, bytes, right],
    ["messages", (row) => row.messages, exact, right], ["behind", (row) => row.since === null ? 0 : Math.max(0, data.end - row.since), (value) => value ? span(value) : "-", right],
    ["ends at offset", (row) => row.end, exact, right]], 1));
  else parts.push(el("p", { class: "note" }, "A master's store does not show how far its slaves are. Use --slave STORE to compare with a slave's store."));
  return section("replication", "Replication", null, parts);
}

function keys() {
  if (!data.hottest.length) return section("keys", "Hot keys", null, el("p", { class: "note" }, data.keyUses
    ? `No hot key was found: about ${count(data.keyCount)} keys were used ${count(data.keyUses)} times.` : "No message has a key."));
  return section("keys", "Hot keys", null, el("p", { class: "note" }, `About ${count(data.keyCount)} keys were used ${count(data.keyUses)} times, ` +
    `${trim(data.keyUses / Math.max(1, data.keyCount))} times each. The most frequent keys:`),
  table(data.hottest, [["key", (row) => row.key, text], ["topic", (row) => row.topic, text], ["messages", (row) => row.messages, exact, right],
    ["of all uses", (row) => row.messages / data.keyUses, (value) => `${trim(100 * value)} %`, right]], 2));
}

// -- the page --

function tile(label, value, more, kind) {
  return el("div", { class: `tile ${kind || ""}` }, el("div", { class: "label" }, label), el("div", { class: "value" }, value),
    more ? el("div", { class: "more" }, more) : null);
}

function tiles() {
  const seconds = Math.max(1, (data.end - data.begin) / SECOND), damaged = data.wrongCrc + data.holes;
  const peak = Math.max(0, ...data.slots.messages) * SECOND / data.slotMs;
  return el("div", { class: "tiles" },
    tile("messages", count(data.messages), `${count(data.topicCount)} topics, ${count(data.queueCount)} queues`),
    tile("log", bytes(data.bytes), data.messages ? `${bytes(data.bytes / data.messages)} per message` : ""),
    tile("time span", span(data.end - data.begin), `${count(data.messages / seconds)} messages/s, ${bytes(data.bytes / seconds)}/s`),
    tile("peak", `${count(peak)}/s`, `messages, over ${span(data.slotMs)}`),
    tile("client to store", data.latency.p50 === null ? "unknown" : span(data.latency.p50), data.latency.p99 === null ? "" : `p50; p99 ${span(data.latency.p99)}`),
    data.groupsKnown ? tile("not consumed", count(data.backlogTotal), `${count(data.groupCount)} pairs of group and topic`) : null,
    tile("damaged", damaged ? count(damaged) : "none", damaged ? `${count(data.wrongCrc)} wrong CRCs, ${count(data.holes)} places without a record (${bytes(data.holeBytes)})`
      : "every CRC was checked", damaged ? "bad" : "good"));
}

function zoom(from, to) {
  const least = Math.max(data.slotMs * 2, SECOND);
  if (to - from < least) [from, to] = [(from + to - least) / 2, (from + to + least) / 2];
  state.from = Math.max(whole.from, Math.min(from, whole.to - least));
  state.to = Math.min(whole.to, Math.max(to, state.from + least));
  redraw();
}

function bar() {
  const range = el("span", { class: "range" });
  const button = (label, name, act) => el("button", { type: "button", "aria-label": name, title: name, onclick: act }, label);
  const move = (part) => {
    const by = Math.max(whole.from - state.from, Math.min(whole.to - state.to, part * (state.to - state.from)));
    zoom(state.from + by, state.to + by);
  };
  const scale = (by) => {
    const half = (state.to - state.from) * by / 2, middle = (state.from + state.to) / 2;
    zoom(middle - half, middle + half);
  };
  const all = button("all", "show all", () => zoom(whole.from, whole.to));
  drawn.push(() => {
    range.textContent = `${moment(state.from)} to ${moment(state.to)} (${zone()})`;
    all.disabled = state.from <= whole.from && state.to >= whole.to;
  });
  const zones = button("UTC", "times in UTC or in local time", () => { state.utc = !state.utc; redraw(); });
  const themes = button("◐", "dark or light theme", () => {
    const dark = state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    state.theme = dark ? "light" : "dark";
    redraw();
  });
  drawn.push(() => zones.setAttribute("aria-pressed", String(state.utc)));
  return el("header", {}, range, el("span", { class: "buttons" }, button("◀", "earlier", () => move(-0.5)), button("▶", "later", () => move(0.5)),
    button("+", "zoom in", () => scale(0.5)), button("−", "zoom out", () => scale(2)), all, zones, themes));
}

// The state is in the address, so that a view can be shared.
function readHash() {
  const given = new URLSearchParams(location.hash.slice(1));
  const number = (name, fallback) => Number.isFinite(parseFloat(given.get(name))) ? parseFloat(given.get(name)) : fallback;
  state.utc = given.get("zone") === "utc";
  state.theme = ["dark", "light"].includes(given.get("theme")) ? given.get("theme") : "";
  state.rate = given.get("rate") === "bytes" ? "bytes" : "messages";
  const logs = given.has("log") ? given.get("log").split(".") : ["latency", "heat"];
  for (const id of ["rate", "latency", "heat", "latencies", "sizes"]) state.scale[id] = logs.includes(id) ? "log" : "linear";
  [state.from, state.to] = [number("from", whole.from), number("to", whole.to)];
}

function writeHash() {
  const logs = Object.keys(state.scale).filter((id) => state.scale[id] === "log").join(".");
  const given = { ...(state.from > whole.from || state.to < whole.to ? { from: Math.round(state.from), to: Math.round(state.to) } : {}),
    ...(state.utc ? { zone: "utc" } : {}), ...(state.theme ? { theme: state.theme } : {}), ...(state.rate === "bytes" ? { rate: "bytes" } : {}),
    ...(logs === "latency.heat" ? {} : { log: logs }) };
  history.replaceState(null, "", `#${new URLSearchParams(given)}`);
}

function redraw() {
  if (state.theme) document.documentElement.dataset.theme = state.theme;
  for (const draw of drawn) draw();
  tip.hidden = true;
  writeHash();
}

function page() {
  const options = Object.entries(data.options).map(([name, value]) => `${name} ${value}`).join(", ");
  const made = el("p", { class: "dim" });
  drawn.push(() => { made.textContent = `Made ${moment(data.made)} by rmqha ${data.version}${options ? `, with ${options}` : ""}`; });
  const charts = data.messages ? [
    lineChart("rate", "Messages per second", rates, choice("unit", [["messages", "messages"], ["bytes", "bytes"]], () => state.rate, (value) => { state.rate = value; }),
      `Each point is ${span(data.slotMs)}. Select a time range to zoom all charts; double-click to reset. Click a name to show or hide its line.`),
    data.latency.max === null ? null : lineChart("latency", "Latency from client to store over time", latencies, null,
      "Store time minus creation time, of messages sent to be stored at once: retries and messages in the broker's own topics are left out, but delayed " +
      "messages count, with their delay, in the topic that they are delivered to. The two times come from the client's and the broker's clocks." +
      (data.bornLater ? ` They differ: ${exact(data.bornLater)} messages were stored before they were created.` : "")),
    heatMap(),
    el("div", { class: "columns" },
      data.latencies.length ? histogram("latencies", "Latency from client to store", data.latencies, 1, "span", "store time minus creation time", data.latency) : null,
      histogram("sizes", "Message sizes", data.sizes, 4, "bytes", "size of the stored message", data.size)),
    topicTable(), groupTable(), replication(), keys()] : [el("p", {}, "The log has no messages.")];
  return [bar(), el("main", {}, el("h1", {}, `Report on ${data.store}`), made, tiles(), charts), tip];
}

readHash();
document.body.append(...page().flat(Infinity).filter(Boolean));
zoom(state.from, state.to);
