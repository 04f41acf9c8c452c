// The dead letters of a group, and sending them again.
import { badge, bytes, card, confirmed, counted, emptyState, field, form, forRole, frame, h, link, path, replace, warnings, when, whole } from "./dom.js";
import { beginning, messageRow } from "./messages.js";

export function openDeadLetters({ api, session, root, name }) {
  const list = h("tbody", {}), notes = h("div", {}), number = h("p", { class: "dim" }), more = h("p", {}), results = h("div", { "aria-live": "polite" });
  const chosen = new Set();
  const topic = `%DLQ%${name}`;
  const which = h("select", { name: "which" }, h("option", { value: "new" }, "the new ones"), h("option", { value: "chosen" }, "the chosen ones"), h("option", { value: "all" }, "all"));
  const columns = [
    { title: "", cell: (row) => h("input", { type: "checkbox", "aria-label": `Choose ${row.message_id}`, onchange: (event) => {
      if (event.target.checked) chosen.add(row.message_id);
      else chosen.delete(row.message_id);
      which.value = chosen.size ? "chosen" : "new";
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
  h("div", { class: "card" }, number, notes, h("table", { class: "messages" }, head, list), more),
  card("Send again", forRole(session, "administer", "Sending dead letters again", () => [
    h("p", { class: "dim" }, "They are sent to the retry topic of the group, so that no other group gets them, or to a topic that you name. The dead letters stay where they are. ",
      "New are those that neither “the new ones” nor “all” has sent; single ones that were chosen stay new."),
    form([h("label", {}, "Which", which),
      field("To", { name: "to", placeholder: "the group only", size: 24 }, "a topic, for all its groups")], "Send again", async (values) => {
      if (values.which === "chosen" && !chosen.size) throw new Error("choose messages in the list first");
      const wanted = values.which === "chosen" ? { ids: [...chosen] } : { [values.which]: true };
      const to = values.to.trim() || null;
      const { count, sent_before: before } = await api.post(`/api/dead-letters/${encodeURIComponent(name)}/resend`, { ...wanted, to, dry_run: true });
      if (!count) return values.which === "new" ? "No dead letter is new: nothing was sent." : "Nothing was sent: these dead letters do not exist any more.";
      if (!await confirmed(`Send ${counted(count, "message")} again?`, [to ? `To the topic ${to}: all its groups get them.` : `Only the group ${name} gets them.`,
        before ? `${whole(before)} of them ${before === 1 ? "was" : "were"} sent again before: consumers get ${before === 1 ? "it" : "those"} once more.` : "None of them was sent again before with “the new ones” or “all”."], "Send")) return "Nothing was sent.";
      const done = await api.post(`/api/dead-letters/${encodeURIComponent(name)}/resend`, { ...wanted, to, dry_run: false });
      await api.get(`/api/dead-letters/${encodeURIComponent(name)}?limit=1`).then(showNumber).catch(() => null);
      replace(results, warnings(done.errors), done.failed ? card("Not sent", done.results.filter((each) => each.error).slice(0, 50).map((each) =>
        h("p", {}, h("span", { class: "mono" }, each.id), " ", badge(each.error, "bad")))) : null);
      return `${counted(done.sent, "message")} sent${done.failed ? `, ${whole(done.failed)} failed` : ""}.`;
    })])), results);
  const asked = new URLSearchParams();
  function showNumber(found) {
    replace(number, found.count === null ? null : `${counted(found.count, "dead letter")}, ${whole(found.new)} new`);
  }
  async function page() {
    replace(more, h("span", { class: "dim" }, "Asking the brokers …"));
    const found = await api.get(`/api/dead-letters/${encodeURIComponent(name)}?${asked}`);
    list.append(...found.rows.flatMap((row) => messageRow(api, topic, row, null, columns)));
    replace(notes, warnings([...found.errors, ...found.notes]));
    showNumber(found);
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
