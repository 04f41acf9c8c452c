// Elements, texts and tables. Text from the cluster only ever becomes a text node, never markup.

export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

// Replaces the children; the element that had the focus gets it back, by its data-key.
export function replace(root, ...children) {
  const key = root.contains(document.activeElement) ? document.activeElement.getAttribute("data-key") : null;
  root.replaceChildren(...children.flat(Infinity).filter(Boolean));
  if (key !== null) root.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
}

const UNITS = ["", "k", "M", "G", "T"];

export function count(value) {
  if (value === null || value === undefined) return "–";
  let size = Math.abs(value), unit = 0;
  const sign = value < 0 ? "−" : "";
  if (size < 10) return sign + String(Math.round(size * 10) / 10);
  if (Math.round(size) < 10000) return sign + Math.round(size).toLocaleString("en");
  while (size >= 1000 && unit < UNITS.length - 1) { size /= 1000; unit += 1; }
  return sign + size.toPrecision(3) + UNITS[unit];
}

export function whole(value) {
  return value === null || value === undefined ? "–" : value.toLocaleString("en");
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const names = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = Math.abs(value), unit = 0;
  while (size >= 1024 && unit < names.length - 1) { size /= 1024; unit += 1; }
  return `${value < 0 ? "−" : ""}${unit ? size.toFixed(1) : Math.round(size)} ${names[unit]}`;
}

export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds <= 0) return "0 s";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

export function percent(ratio) {
  return ratio === null || ratio === undefined ? "–" : `${Math.round(ratio * 100)} %`;
}

export function when(ms) {
  if (!ms || ms < 0) return "–";
  const at = new Date(ms), two = (n) => String(n).padStart(2, "0");
  if (Number.isNaN(at.getTime())) return String(ms);  // outside the range of dates
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:` +
    `${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

export function tone(status) {
  return { OK: "good", WARNING: "warn", UNKNOWN: "warn", CRITICAL: "bad" }[status] || "";
}

export function badge(text, kind) {
  return h("span", { class: `badge ${kind}` }, text);
}

const orders = new Map(); // table -> [column, descending]; kept while the page is open

// columns: {title, right, cell(row) -> node or text, value(row) -> what to sort by, name}
export function table(id, columns, rows, empty, again) {
  const order = orders.get(id);
  const shown = [...rows];
  if (order) {
    const value = columns[order[0]].value;
    shown.sort((one, other) => compare(value(one), value(other)) * (order[1] ? -1 : 1));
  }
  const head = columns.map((column, number) => {
    const sorted = order && order[0] === number ? (order[1] ? "descending" : "ascending") : null;
    const mark = { ascending: " ▲", descending: " ▼" }[sorted] || "";
    const title = column.value
      ? h("button", { type: "button", "data-key": `${id}-${number}`, onclick: () => {
        orders.set(id, [number, sorted ? sorted === "ascending" : Boolean(column.right)]);
        again();
      } }, column.title + mark)
      : column.title;
    return h("th", { scope: "col", class: column.right ? "right" : null, "aria-sort": sorted }, title);
  });
  if (!shown.length) return h("p", { class: "dim" }, empty);
  return h("table", { id }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, shown.map((row) => h("tr", {},
    columns.map((column) => h("td", { class: [column.right ? "right" : "", column.name ? "name" : ""].join(" ").trim() || null },
      column.cell(row)))))));
}

function compare(one, other) {
  if (one === null || one === undefined) return other === null || other === undefined ? 0 : -1;
  if (other === null || other === undefined) return 1;
  return typeof one === "string" ? one.localeCompare(other) : one - other;
}

export function card(title, ...children) {
  return h("section", { class: "card" }, title ? h("h2", {}, title) : null, children);
}

export function link(page, name) {
  const to = `/${page}/${encodeURIComponent(name)}`;
  return h("a", { href: to, "data-key": to }, name);
}
