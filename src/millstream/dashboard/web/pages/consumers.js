// Consumers: how far behind, what is in flight, and why nothing comes.
import * as api from "../api.js";
import { button, chip, clear, count, confirmTyped, dialog, empty, facts, field, h, head, span, table, toast } from "../ui.js";

export async function show(view) {
  let wanted = "";
  const box = h("section", { class: "card flush" });
  const search = h("input", { type: "search", placeholder: "Find a consumer", "aria-label": "Find a consumer" });
  clear(view.root, head("Consumers", "Places in streams: who reads, how far they are, and what they wait for.", search), box);
  let found = [];
  const draw = () => {
    const shown = found.filter(c => `${c.stream_name} ${c.name}`.toLowerCase().includes(wanted));
    clear(box, shown.length ? consumerTable(shown.slice(0, 500), look, true) : empty(wanted ? "No consumer has such a name" : "No consumers", wanted ? "" : "A client that asks a stream for its messages makes one.", wanted ? null : "millstream consumer why STREAM CONSUMER"));
  };
  const look = async () => { found = await api.all("/v0/consumers", "consumers", 2000); if (!view.left) draw(); };
  search.addEventListener("input", () => { wanted = search.value.toLowerCase(); draw(); });
  await look();
  view.every(2000, async () => { if (!box.contains(document.activeElement)) await look(); });
}

const lagKind = c => c.paused ? "warn" : ["max_ack_pending", "no_interest", "nobody_pulls", "pinned", "filter_matches_nothing"].includes(c.reason) ? "bad" : c.num_pending ? "accent" : "good";

export function consumerTable(found, again, withStream = false) {
  const columns = [
    withStream && { title: "Stream", class: "name", cell: c => h("a", { href: `#/stream/${encodeURIComponent(c.stream_name)}/consumers` }, c.stream_name) },
    { title: "Consumer", class: "name", cell: c => [c.name, " ", c.reader && chip(c.reader, "accent"), c.config.deliver_subject && chip("push")] },
    { title: "Lag", num: true, cell: c => count(c.num_pending) },
    { title: "In flight", num: true, cell: c => count(c.num_ack_pending) },
    { title: "Redelivered", num: true, cell: c => count(c.num_redelivered) },
    { title: "Acked to", num: true, cell: c => count(c.ack_floor.stream_seq) },
    { title: "What it waits for", cell: c => chip(c.why.split(";")[0], lagKind(c)) },
    { title: "", cell: c => h("div", { class: "row" },
      api.may("admin") && button(c.paused ? "Resume" : "Pause", () => pause(c, again), "small"),
      api.may("admin") && button("Reset", () => reset(c, again), "small"),
      api.may("delete") && button("Delete", () => remove(c, again), "small danger")) },
  ].filter(Boolean);
  return table("Consumers", columns, found);
}

async function pause(c, again) {
  if (c.paused) { await api.post(api.consumer(c.stream_name, c.name, "/pause"), { seconds: 0 }); toast(`${c.name} goes on`); return again(); }
  const minutes = h("input", { type: "number", min: "1", value: "60" });
  const done = await dialog(`Pause ${c.name}`, field("Minutes", minutes, "deliveries stop until then"), "Pause",
    () => api.post(api.consumer(c.stream_name, c.name, "/pause"), { seconds: Number(minutes.value) * 60 }));
  if (done) { toast(`${c.name} is paused for ${span(Number(minutes.value) * 60000)}`); await again(); }
}
async function reset(c, again) {
  const seq = h("input", { type: "number", min: "0", value: String(c.ack_floor.stream_seq + 1) });
  const done = await dialog(`Reset ${c.name}`, h("div", { class: "stack" }, h("p", null, "It delivers again from this sequence on. Messages that were acked come once more."), field("Sequence", seq)), "Reset",
    () => api.post(api.consumer(c.stream_name, c.name, "/reset"), { seq: Number(seq.value) }));
  if (done) { toast(`${c.name} begins at ${count(done.reset_seq)}`); await again(); }
}
async function remove(c, again) {
  const done = await confirmTyped(`Delete ${c.name}`, `The consumer and its place in ${c.stream_name} go for good. The messages stay.`, c.name, "Delete", () => api.del(api.consumer(c.stream_name, c.name)));
  if (done) { toast(`Deleted ${c.name}`); await again(); }
}
