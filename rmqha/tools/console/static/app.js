// Polls the API and shows the page that belongs to the path; signs in; searches names.
import { h, path, replace } from "./dom.js";
import { PAGES } from "./pages.js";

const main = document.getElementById("main");
const state = document.getElementById("state");
const pause = document.getElementById("pause");
const user = document.getElementById("user");
const TOKEN = "rmqha-console-token";
const ROLES = ["see", "publish", "administer"];
let paused = false, turn = 0, timer = null, session = null;

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

async function call(to, options = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  let response;
  try {
    response = await fetch(to, { ...options, headers, cache: "no-store", redirect: "error" });
  } catch {
    throw new ApiError(0, "the console does not answer: is it still running?");
  }
  if (response.ok) return response;
  const answer = await response.json().catch(() => ({ error: `status ${response.status}` }));
  if (response.status === 401 && to !== "/api/session") signIn();
  throw new ApiError(response.status, answer.error);
}

export const api = {
  get: async (to) => (await call(to)).json(),
  blob: async (to) => (await call(to)).blob(),
  post: async (to, body) => (await call(to, { method: "POST", body: JSON.stringify(body),
    headers: { "Content-Type": "application/json", "X-Rmqha-Console": "1" } })).json(),
};

// ---- signing in

const dialog = document.getElementById("sign-in");
const problem = document.getElementById("sign-in-problem");

function signIn() {
  for (const each of dialog.querySelectorAll("[data-way]")) each.hidden = session !== null && !session.ways.includes(each.dataset.way);
  if (!dialog.open) dialog.showModal();
}

dialog.addEventListener("submit", async (event) => {
  event.preventDefault();
  const given = Object.fromEntries(new FormData(event.target));
  problem.textContent = "";
  try {
    if (given.token !== undefined) sessionStorage.setItem(TOKEN, given.token.trim());
    else sessionStorage.setItem(TOKEN, (await api.post("/api/session", { access_key: given.access_key, secret_key: given.secret_key })).token);
    session = null;
    const now = await readSession();
    if (now.role === null) throw new Error("this token is not valid");
    event.target.reset();
    dialog.close();
    show();
  } catch (error) {
    sessionStorage.removeItem(TOKEN);
    problem.textContent = error.message;
  }
});
document.getElementById("sign-in-cancel").addEventListener("click", () => dialog.close());

user.addEventListener("click", async () => {
  if (session?.user) {
    await api.post("/api/session/end", {}).catch(() => null);
    sessionStorage.removeItem(TOKEN);
    session = null;
    show();
  } else signIn();
});

async function readSession() {
  session = await api.get("/api/session");
  session.may = (role) => session.role !== null && ROLES.indexOf(session.role) >= ROLES.indexOf(role);
  user.textContent = session.user ? "Sign out" : "Sign in";
  user.title = session.user ? `${session.user}, role: ${session.role}` : "";
  user.hidden = !session.ways.length;
  return session;
}

// ---- pages

function find(to) {
  for (const each of PAGES) {
    const match = each.path.exec(to);
    if (match) return { ...each, name: match[1] === undefined ? null : decodeURIComponent(match[1]) };
  }
  return null;
}

function heading(shown) {
  if (!shown.name) return shown.title;
  return location.pathname.split("/").length > 3 ? `${shown.name} · ${shown.title}` : `${shown.title} ${shown.name}`;
}

function crumbs(shown) {
  if (!shown.crumbs) return null;
  const parts = shown.crumbs.map(([to, text]) => h("li", {}, h("a", { href: to }, text)));
  const [, page] = location.pathname.split("/");
  const isPart = location.pathname.split("/").length > 3;
  if (isPart) parts.push(h("li", {}, h("a", { href: path(page, shown.name) }, shown.name)));
  parts.push(h("li", { "aria-current": "page" }, isPart ? shown.title : shown.name));
  return h("nav", { class: "crumbs", "aria-label": "Breadcrumbs" }, h("ol", {}, parts));
}

async function show() {
  clearTimeout(timer);
  const mine = ++turn, shown = find(location.pathname);
  document.getElementById("menu").open = false;
  for (const a of document.querySelectorAll("header nav a")) {
    const here = a.pathname === "/" ? location.pathname === "/" : location.pathname.startsWith(a.pathname);
    if (here) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  if (shown === null) {
    document.title = "Not found · rmqha console";
    main.replaceChildren(h("h1", {}, "This page does not exist"), h("p", {}, "Go to ", h("a", { href: "/" }, "the cluster"), "."));
    return;
  }
  document.title = `${shown.name ? `${shown.name} · ` : ""}${shown.title} · rmqha console`;
  try {
    if (session === null) await readSession();
  } catch (error) {
    notify(error.message, true);
    timer = setTimeout(show, 2000);
    return;
  }
  if (mine !== turn) return;
  if (session.needs_sign_in && session.role === null) {
    main.replaceChildren(h("h1", {}, "Sign in"), h("p", {}, "This console shows its cluster to people who have signed in."));
    signIn();
    return;
  }
  const root = h("div", {});
  const context = { api, session, name: shown.name, root, query: new URLSearchParams(location.search), go, again: () => update() };
  const draw = shown.open(context);
  main.replaceChildren(...[crumbs(shown), h("h1", {}, heading(shown)), root].filter(Boolean));

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
        if (!root.hasChildNodes() || !root.textContent.trim()) replace(root, h("p", { role: "alert" }, error.message));
        notify(error.message, true);
      }
    }
    const every = draw.every_ms ?? (shown.live === false ? null : session.interval_s * 1000);
    if (mine === turn && every !== null) timer = setTimeout(update, every);
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
  if (!a || a.origin !== location.origin || a.hash || a.hasAttribute("download") || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
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

// ---- the search for names

const search = document.getElementById("search"), names = document.getElementById("names");
let searching = null;

search.addEventListener("input", () => {
  clearTimeout(searching);
  searching = setTimeout(async () => {
    const text = search.value.trim();
    if (!text) return replace(names);
    try {
      const found = await api.get(`/api/search?${new URLSearchParams({ q: text })}`);
      const part = (page, title, list) => list.map((name) => h("li", {}, h("a", { href: path(page, name) }, name, h("small", {}, ` ${title}`))));
      const all = [...part("topics", "topic", found.topics), ...part("groups", "group", found.groups), ...part("brokers", "broker", found.brokers)];
      replace(names, all.length ? all : h("li", { class: "dim" }, "nothing has this name"));
    } catch (error) {
      replace(names, h("li", { class: "dim" }, error.message));
    }
  }, 150);
});
document.getElementById("search-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const first = names.querySelector("a");
  if (first) first.click();
});
document.addEventListener("click", (event) => {
  if (event.target.closest("#search-form") && !event.target.closest("a")) return;
  replace(names);
});

const KEYS = { 1: "/", 2: "/topics", 3: "/groups", 4: "/messages", 5: "/dead-letters", 6: "/config", 7: "/accounts", 8: "/store" };

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") replace(names);
  if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (KEYS[event.key]) go(KEYS[event.key]);
  else if (event.key === "p") pause.click();
  else if (event.key === "/") {
    event.preventDefault();
    (document.getElementById("filter") || search).focus();
  } else if (event.key === "s") {
    event.preventDefault();
    search.focus();
  }
});
show();
