// The dead letters of a group, and sending them again.
import { badge, bytes, card, confirmed, counted, emptyState, field, form, forRole, frame, h, link, path, replace, warnings, when, whole } from "./dom.js";
import { beginning, messageRow } from "./messages.js";

export function openDeadLetters({ api, session, root, name }) {
  const list = h("tbody", {}), notes = h("div", {}), more = h("p", {}), results = h("div", { "aria-live": "polite" });
  const chosen = new Set();
  const topic = `%DLQ%${name}`;
  const columns = [
    { title: "", cell: (row) => h("input", { type: "checkbox", "aria-label": `Choose ${row.message_id}`, onchange: (event) => {
      if (event.target.checked) chosen.add(row.message_id);
      else chosen.delete(row.message_id);
    } }) },
    { title: "Dead since", cell: (row) => when(row.store_ms) },
    { title: "Topic", name: true, cell: (row) => row.origin_topic ? link("topics", row.origin_topic) : "" },
    { title: "Keys", name: true, cell: (row) => row.keys.join(" ") },
    { title: "Tag", cell: (row) => row.tags },
    { title: "Tries", right: true, cell: (row) => whole(row.reconsume_times) },
    { title: "Size", right: true, cell: (row) => bytes(row.body_size) },
    { title: "Body", name: true, cell: (row) => h("span", { class: "mono beginning" }, beginning(row)) },
  ];
  const head = h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col", class: column.right ? "right" : null }, column.title)), h("th", {}, "")));
  frame(root, h("p", {}, "Messages that the consumers of ", link("groups", name), " have given up. ",
    "The topic is ", h("a", { href: path("topics", topic) }, topic), "."),
  h("div", { class: "card" }, notes, h("table", { class: "messages" }, head, list), more),
  card("Send again", forRole(session, "administer", "Sending dead letters again", () => [
    h("p", { class: "dim" }, "They are sent to the retry topic of the group, so that no other group gets them, or to a topic that you name. The dead letters stay where they are."),
    form([h("label", {}, "Which", h("select", { name: "which" }, h("option", { value: "chosen" }, "the chosen ones"), h("option", { value: "all" }, "all"))),
      field("To", { name: "to", placeholder: "the group only", size: 24 }, "a topic, for all its groups")], "Send again", async (values) => {
      if (values.which === "chosen" && !chosen.size) throw new Error("choose messages in the list first");
      const which = values.which === "all" ? { all: true } : { ids: [...chosen] };
      const to = values.to.trim() || null;
      const { count } = await api.post(`/api/dead-letters/${encodeURIComponent(name)}/resend`, { ...which, to, dry_run: true });
      if (!await confirmed(`Send ${counted(count, "message")} again?`, [to ? `To the topic ${to}: all its groups get them.` : `Only the group ${name} gets them.`], "Send")) return "Nothing was sent.";
      const done = await api.post(`/api/dead-letters/${encodeURIComponent(name)}/resend`, { ...which, to, dry_run: false });
      replace(results, done.failed ? card("Not sent", done.results.filter((each) => each.error).slice(0, 50).map((each) =>
        h("p", {}, h("span", { class: "mono" }, each.id), " ", badge(each.error, "bad")))) : null);
      return `${counted(done.sent, "message")} sent${done.failed ? `, ${whole(done.failed)} failed` : ""}.`;
    })])), results);
  const asked = new URLSearchParams();
  async function page() {
    replace(more, h("span", { class: "dim" }, "Asking the brokers …"));
    const found = await api.get(`/api/dead-letters/${encodeURIComponent(name)}?${asked}`);
    list.append(...found.rows.flatMap((row) => messageRow(api, topic, row, null, columns)));
    replace(notes, warnings([...found.errors, ...found.notes]));
    if (found.at_end) {
      replace(more, list.hasChildNodes() ? h("span", { class: "dim" }, "That is all.") : emptyState("This group has no dead letters.",
        "A message becomes one when a consumer has failed it 16 times, or refused it for good."));
      return;
    }
    asked.set("cursor", found.cursor);
    replace(more, h("button", { type: "button", class: "act", onclick: () => page().catch((error) => replace(more, h("span", { role: "alert" }, error.message))) }, "More"));
  }
  return page;
}
