// Elements, texts, tables and dialogs. Text from the cluster only ever becomes a text node, never markup.

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
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Replaces the children; the element that had the focus gets it back, by its data-key.
export function replace(root, ...children) {
  const key = root.contains(document.activeElement) ? document.activeElement.getAttribute("data-key") : null;
  const open = [...root.querySelectorAll("details[open][data-key]")].map((each) => each.getAttribute("data-key"));
  root.replaceChildren(...children.flat(Infinity).filter(Boolean));
  for (const each of open) root.querySelector(`details[data-key="${CSS.escape(each)}"]`)?.setAttribute("open", "");
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

export function counted(value, noun) {
  return `${whole(value)} ${noun}${value === 1 ? "" : "s"}`;
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

const two = (n) => String(n).padStart(2, "0");

export function when(ms) {
  if (!ms || ms < 0) return "–";
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return String(ms);  // outside the range of dates
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:` +
    `${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

// The value of an input of type datetime-local, in ms since 1970, and back.
export function fromLocal(text) {
  const ms = new Date(text).getTime();
  return Number.isNaN(ms) ? null : ms;
}

export function tone(status) {
  return { OK: "good", WARNING: "warn", UNKNOWN: "warn", CRITICAL: "bad" }[status] || "";
}

export function badge(text, kind = "") {
  return h("span", { class: `badge ${kind}` }, text);
}

const orders = new Map(); // table -> [column, descending]; kept while the page is open

// columns: {title, right, cell(row) -> node or text, value(row) -> what to sort by, name, always}
export function table(id, columns, rows, empty, again) {
  const order = orders.get(id);
  const shown = [...rows];
  if (order && columns[order[0]]?.value) {
    const value = columns[order[0]].value;
    shown.sort((one, other) => compare(value(one), value(other)) * (order[1] ? -1 : 1));
  }
  const head = columns.map((column, number) => {
    const sorted = order && order[0] === number ? (order[1] ? "descending" : "ascending") : null;
    const mark = { ascending: " ▲", descending: " ▼" }[sorted] || "";
    const title = column.value && again
      ? h("button", { type: "button", "data-key": `${id}-${number}`, onclick: () => {
        orders.set(id, [number, sorted ? sorted === "ascending" : Boolean(column.right)]);
        again();
      } }, column.title + mark)
      : column.title;
    return h("th", { scope: "col", class: column.right ? "right" : null, "aria-sort": sorted }, title);
  });
  if (!shown.length) return typeof empty === "string" ? h("p", { class: "dim" }, empty) : empty;
  return h("table", { id }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, shown.map((row) => rowOf(columns, row))));
}

export function rowOf(columns, row, attributes = {}) {
  return h("tr", attributes, columns.map((column) => h("td", {
    class: [column.right ? "right" : "", column.name ? "name" : ""].join(" ").trim() || null,
    "data-label": column.title || null }, column.cell(row))));
}

function compare(one, other) {
  if (one === null || one === undefined) return other === null || other === undefined ? 0 : -1;
  if (other === null || other === undefined) return 1;
  return typeof one === "string" ? one.localeCompare(other) : one - other;
}

export function card(title, ...children) {
  return h("section", { class: "card" }, title ? h("h2", {}, title) : null, children);
}

// The state of a page without rows: it names the missing thing, and the next step.
export function emptyState(title, ...todo) {
  return h("div", { class: "empty" }, h("p", { class: "strong" }, title), todo.map((each) => h("p", {}, each)));
}

export function command(text) {
  return h("code", { class: "command" }, text);
}

export function path(...parts) {
  return "/" + parts.map(encodeURIComponent).join("/");
}

export function link(page, name, text = name) {
  const to = path(page, name);
  return h("a", { href: to, "data-key": to }, text);
}

export function field(label, attributes, hint) {
  return h("label", {}, label, h("input", { autocomplete: "off", ...attributes }), hint ? h("small", {}, hint) : null);
}

let lists = 0;

// A field for a topic; `offer(text)` returns the names to offer when this text is typed.
export function topicField(attributes, offer) {
  const list = h("datalist", { id: `topics-${++lists}` });
  let waiting = null;
  const show = async (input) => {
    const text = input.value.trim();
    try {
      const names = await offer(text);
      if (input.value.trim() === text) list.replaceChildren(...names.map((name) => h("option", { value: name })));
    } catch { /* a name can be typed nevertheless */ }
  };
  return h("label", {}, "Topic", h("input", { name: "topic", autocomplete: "off", list: list.id, ...attributes, onfocus: (event) => show(event.target),
    oninput: (event) => {
      clearTimeout(waiting);
      waiting = setTimeout(() => show(event.target), 150);
    } }), list);
}

export function select(label, name, options, chosen, attributes = {}) {
  return h("label", {}, label, h("select", { name, ...attributes }, options.map((each) => {
    const [value, text] = Array.isArray(each) ? each : [each, each];
    return h("option", { value, selected: value === chosen }, text);
  })));
}

// A field that filters the rows, also when they are refreshed.
export function filterField(label, changed, value = "") {
  return h("label", {}, label, h("input", { id: "filter", type: "search", value, oninput: changed, "data-key": "filter" }));
}

// Asks before a change; resolves to true or false. With `typed`, that text must be typed first.
export function confirmed(title, lines, button, typed = null) {
  return new Promise((resolve) => {
    const input = typed === null ? null : h("input", { autocomplete: "off", "aria-label": `Type ${typed}`, oninput: () => {
      act.disabled = input.value !== typed;
    } });
    const act = h("button", { class: "danger", value: "yes", disabled: typed !== null }, button);
    const dialog = h("dialog", { "aria-labelledby": "confirm-title", onclose: () => {
      resolve(dialog.returnValue === "yes");
      dialog.remove();
    } }, h("form", { method: "dialog" }, h("h2", { id: "confirm-title" }, title), lines.map((line) => h("p", {}, line)),
      typed === null ? null : h("label", {}, "Type ", h("b", {}, typed), " to confirm", input),
      h("p", { class: "buttons" }, h("button", { value: "no", class: "plain", formnovalidate: true }, "Cancel"), act)));
    document.body.append(dialog);
    dialog.showModal();
  });
}

// A form whose submit runs `run(values)`, and shows its result or its error below.
export function form(fields, button, run, attributes = {}) {
  const status = h("p", { class: "status", role: "status" });
  const act = h("button", { type: "submit", class: "act" }, button);
  return h("form", { class: "bar", ...attributes, onsubmit: async (event) => {
    event.preventDefault();
    act.disabled = true;
    status.classList.remove("bad");
    try {
      const said = await run(Object.fromEntries(new FormData(event.target)), event.target);
      status.replaceChildren(...[said].flat().filter(Boolean));
    } catch (error) {
      status.classList.add("bad");
      status.textContent = `Not done: ${error.message}`;
    } finally {
      act.disabled = false;
    }
  } }, fields, act, status);
}

// The parts of a page that only a role may use; others see which role is needed.
export function forRole(session, role, what, make) {
  if (session.may(role)) return make();
  return h("p", { class: "dim" }, `${what} needs the role “${role}”; `, session.role === null
    ? "sign in first." : `you have “${session.role}”. The console gives it to a token with --role ${role}.`);
}

export function tabs(list, here) {
  return h("nav", { class: "tabs", "aria-label": "Views" }, list.map(([to, text]) =>
    h("a", { href: to, "aria-current": to === here ? "page" : null }, text)));
}

export function troubles(list) {
  const worst = [...list].sort((one, other) => (tone(one.status) === "bad" ? 0 : 1) - (tone(other.status) === "bad" ? 0 : 1));
  return worst.length ? h("ul", { class: "troubles", "aria-label": "Problems" },
    worst.map((each) => h("li", { class: tone(each.status) }, each.text))) : null;
}

export function warnings(texts) {
  return troubles((texts || []).map((text) => ({ status: "WARNING", text })));
}

export function frame(root, ...parts) {
  root.replaceChildren(...parts.flat(Infinity).filter(Boolean));
  return parts;
}

export function save(blob, name) {
  const url = URL.createObjectURL(blob);
  const a = h("a", { href: url, download: name });
  document.body.append(a);
  a.click();
  a.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
