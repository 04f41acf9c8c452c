// Accounts of access control: what each may do, on which brokers, and whether it may do something.
import { badge, card, command, confirmed, emptyState, field, form, forRole, frame, h, link, replace, select, table, warnings } from "./dom.js";

export function openAccounts({ api, session, root, again }) {
  const [live] = frame(root, h("div", { class: "card" }),
    card("May it?", form([field("Account", { name: "account", required: true, size: 18 }),
      select("What", "kind", [["topic", "topic"], ["group", "group"]], "topic"), field("Name", { name: "name", required: true, size: 22 }),
      select("Permission", "permission", [["PUB", "publish (PUB)"], ["SUB", "consume (SUB)"]], "PUB")], "Check", async (values) => {
      const asked = new URLSearchParams({ account: values.account, [values.kind]: values.name, permission: values.permission });
      const found = await api.get(`/api/accounts/check?${asked}`);
      return [badge(found.allowed === null ? "unknown" : found.allowed ? "allowed" : "denied", found.allowed === null ? "warn" : found.allowed ? "good" : "bad"), ` ${found.because}`];
    })),
    card("Create an account", forRole(session, "administer", "Creating an account", () => form([
      field("Access key", { name: "access_key", required: true, minlength: 7, size: 18 }),
      field("Secret key", { name: "secret_key", type: "password", required: true, minlength: 7, autocomplete: "new-password" }),
      select("Default for topics", "default_topic_perm", ["DENY", "PUB", "SUB", "PUB|SUB"], "DENY"),
      select("Default for groups", "default_group_perm", ["DENY", "PUB", "SUB", "PUB|SUB"], "SUB"),
      h("label", { class: "full" }, "Topics, one NAME=PERMISSION per line", h("textarea", { name: "topics", rows: 2, placeholder: "orders=PUB|SUB", spellcheck: "false" })),
      h("label", { class: "full" }, "Groups, one NAME=PERMISSION per line", h("textarea", { name: "groups", rows: 2, spellcheck: "false" }))], "Create", async (values) => {
      const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);
      const done = await api.post("/api/accounts", { ...values, topic_perms: lines(values.topics), group_perms: lines(values.groups) });
      again();
      return done.done;
    }, { class: "bar wide" }))));
  return async () => {
    const { accounts, errors, enabled, white_addresses: white } = await api.get("/api/accounts");
    if (!enabled && !accounts.length) {
      replace(live, warnings(errors), emptyState("Access control is off: every client may do everything.",
        ["Set ", command("aclEnable=true"), " in the brokers' files and write ", command("conf/plain_acl.yml"), "; then restart the brokers."]));
      return;
    }
    replace(live, warnings(errors), table("accounts", [
      { title: "Account", name: true, cell: (row) => h("span", { class: "mono" }, row.access_key), value: (row) => row.access_key },
      { title: "Role", cell: (row) => row.admin ? badge("admin", "warn") : "" },
      { title: "Topics", name: true, cell: (row) => permissions("topics", row.topic_perms, row.default_topic_perm) },
      { title: "Groups", name: true, cell: (row) => permissions("groups", row.group_perms, row.default_group_perm) },
      { title: "White list", cell: (row) => row.white_address || "–" },
      { title: "Brokers", cell: (row) => [row.missing.length ? badge(`not on ${row.missing.join(", ")}`, "bad") : "all", row.differing.length ? badge(`differs: ${row.differing.join(", ")}`, "bad") : null] },
      ...(session.may("administer") ? [{ title: "", cell: (row) => h("button", { type: "button", class: "plain", onclick: async () => {
        if (!await confirmed(`Delete ${row.access_key}?`, ["Its clients are refused at once, on all brokers."], "Delete", row.access_key)) return;
        await api.post(`/api/accounts/${encodeURIComponent(row.access_key)}/delete`, {});
        again();
      } }, "Delete") }] : []),
    ], accounts, emptyState("The brokers have no account yet."), again),
    h("p", { class: "dim" }, white.length ? `Served without an account: ${white.join(", ")}` : "No address is served without an account."));
  };
}

function permissions(page, entries, byDefault) {
  return [entries.map((entry) => {
    const at = entry.lastIndexOf("="), name = entry.slice(0, at);
    return h("div", {}, link(page, name), ` ${entry.slice(at + 1)}`);
  }), h("div", { class: "dim" }, `others: ${byDefault || "DENY"}`)];
}
