// Polls the API and shows the page that belongs to the path.
import { h, replace } from "./dom.js";
import { PAGES } from "./pages.js";

const main = document.getElementById("main");
const state = document.getElementById("state");
const pause = document.getElementById("pause");
const TOKEN = "rmqha-console-token";
let paused = false, turn = 0, timer = null, session = null, page = null;

if (location.hash.startsWith("#token=")) {
  sessionStorage.setItem(TOKEN, decodeURIComponent(location.hash.slice(7)));
  history.replaceState(null, "", location.pathname + location.search);
}

class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function call(path, options = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store", redirect: "error" });
  } catch {
    throw new ApiError(0, "the console does not answer: is it still running?");
  }
  const answer = await response.json().catch(() => ({ error: `status ${response.status}` }));
  if (response.ok) return answer;
  if (response.status === 401) askToken();
  throw new ApiError(response.status, answer.error);
}

function askToken() {
  const dialog = document.getElementById("token-dialog");
  if (!dialog.open) dialog.showModal();
}

document.getElementById("token-dialog").addEventListener("close", () => {
  const input = document.getElementById("token");
  if (input.value.trim()) {
    sessionStorage.setItem(TOKEN, input.value.trim());
    input.value = "";
    show();
  }
});

export const api = {
  get: (path) => call(path),
  post: (path, body) => call(path, { method: "POST", body: JSON.stringify(body),
    headers: { "Content-Type": "application/json", "X-Rmqha-Console": "1" } }),
};

function find(path) {
  for (const each of PAGES) {
    const match = each.path.exec(path);
    if (match) return { ...each, name: match[1] === undefined ? null : decodeURIComponent(match[1]) };
  }
  return PAGES[0];
}

async function show() {
  clearTimeout(timer);
  const mine = ++turn, shown = find(location.pathname);
  page = shown;
  document.title = `${shown.name || shown.title} · rmqha console`;
  for (const a of document.querySelectorAll("nav a")) {
    const here = a.pathname === "/" ? location.pathname === "/" : location.pathname.startsWith(a.pathname);
    if (here) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  try {
    session ??= await api.get("/api/session");
  } catch (error) {
    notify(error.message, true);
    timer = setTimeout(show, 2000);
    return;
  }
  if (mine !== turn) return;
  const root = h("div", {});
  const context = { api, session, name: shown.name, root, query: new URLSearchParams(location.search), go, again: () => update() };
  const draw = shown.open(context);
  main.replaceChildren(h("h1", {}, shown.name ? `${shown.title} ${shown.name}` : shown.title), root);

  async function update(first = false) {
    clearTimeout(timer);
    if (!paused || first) {
      try {
        await draw();
        if (mine !== turn) return;
        notify(`${session.namesrv ? session.namesrv + " · " : ""}${new Date().toLocaleTimeString("en-GB")}`, false);
      } catch (error) {
        if (mine !== turn) return;
        if (error.status === undefined) console.error(error);
        if (!root.hasChildNodes()) replace(root, h("p", { class: "dim" }, error.message));
        notify(error.message, true);
      }
    }
    if (mine === turn && shown.live !== false) timer = setTimeout(update, session.interval_s * 1000);
  }
  await update(true);
}

function notify(text, bad) {
  state.textContent = paused && !bad ? `paused · ${text}` : text;
  state.classList.toggle("bad", bad);
}

function go(to) {
  history.pushState(null, "", to);
  show().then(() => main.focus({ preventScroll: true }));
  scrollTo(0, 0);
}

document.addEventListener("click", (event) => {
  const a = event.target.closest("a");
  if (!a || a.origin !== location.origin || a.hash || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  go(a.pathname + a.search);
});
addEventListener("popstate", show);
pause.addEventListener("click", () => {
  paused = !paused;
  pause.setAttribute("aria-pressed", String(paused));
  pause.textContent = paused ? "Resume" : "Pause";
  if (!paused) show();
});
document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  const to = { 1: "/", 2: "/topics", 3: "/groups", 4: "/messages", 5: "/store" }[event.key];
  if (to) go(to);
  else if (event.key === "p") pause.click();
  else if (event.key === "/" && document.getElementById("filter")) {
    event.preventDefault();
    document.getElementById("filter").focus();
  }
});
show();
