// JSON as a tree that folds, with its texts as they were sent: numbers keep all their digits.
import { h } from "./dom.js";

const MAX_NODES = 20000, MAX_DEPTH = 200, SHOWN_CHILDREN = 200, OPEN_DEPTH = 3;
const TOKEN = /\s*(?:([{}[\],:])|("(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")|(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)|(true|false|null))/y;

// Returns {kind, text, children: [[key, node], ...]}, or null when the text is not JSON, or has too many parts.
export function parseJson(text) {
  const stack = [], regex = new RegExp(TOKEN);
  let nodes = 0, root = null, key = null, wants = "value";
  const put = (node) => {
    nodes += 1;
    if (!stack.length) root = node;
    else stack[stack.length - 1].children.push([key, node]);
    key = null;
    if (node.children) {
      stack.push(node);
      wants = node.kind === "object" ? "key or end" : "value or end";
    } else wants = stack.length ? "comma or end" : "nothing";
  };
  while (true) {
    if (wants === "nothing") return /^\s*$/.test(text.slice(regex.lastIndex)) ? root : null;
    const found = regex.exec(text);
    if (!found || nodes > MAX_NODES || stack.length > MAX_DEPTH) return null;
    const [, mark, string, number, word] = found, top = stack[stack.length - 1];
    if (mark === "{" || mark === "[") {
      if (!wants.startsWith("value")) return null;
      put({ kind: mark === "{" ? "object" : "array", children: [] });
    } else if (mark === "}" || mark === "]") {
      if (!top || !wants.endsWith("end") || (mark === "}") !== (top.kind === "object")) return null;
      stack.pop();
      wants = stack.length ? "comma or end" : "nothing";
    } else if (mark === ",") {
      if (wants !== "comma or end") return null;
      wants = top.kind === "object" ? "key" : "value";
    } else if (mark === ":") {
      if (wants !== "colon") return null;
      wants = "value";
    } else if (string !== undefined && wants.startsWith("key")) {
      key = string;
      wants = "colon";
    } else if (wants.startsWith("value")) {
      put({ kind: string !== undefined ? "string" : number !== undefined ? "number" : "word", text: string ?? number ?? word });
    } else return null;
  }
}

export function jsonTree(node) {
  return h("div", { class: "json", tabindex: 0 }, part(null, node, 0));
}

function part(key, node, depth) {
  const name = key === null ? null : [h("span", { class: "json-key" }, key), ": "];
  if (!node.children) return h("div", {}, name, h("span", { class: `json-${node.kind}` }, node.text));
  const [begin, end] = node.kind === "object" ? ["{", "}"] : ["[", "]"];
  if (!node.children.length) return h("div", {}, name, begin + end);
  const inner = h("div", { class: "json-inner" });
  // A closed part is made when it is opened: a large document costs what is seen of it.
  const fill = (from) => {
    const to = Math.min(from + SHOWN_CHILDREN, node.children.length);
    inner.append(...node.children.slice(from, to).map(([each, child]) => part(each, child, depth + 1)));
    if (to < node.children.length) {
      const more = h("button", { type: "button", class: "plain", onclick: () => { more.remove(); fill(to); } },
        `${node.children.length - to} more`);
      inner.append(more);
    }
  };
  const open = depth < OPEN_DEPTH;
  if (open) fill(0);
  return h("details", { open, ontoggle: (event) => {
    if (event.target.open && !inner.hasChildNodes()) fill(0);
  } }, h("summary", {}, name, begin, h("span", { class: "dim json-count" }, ` ${node.children.length} `),
    h("span", { class: "json-closed" }, end)), inner, h("div", {}, end));
}
