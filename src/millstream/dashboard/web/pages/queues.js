// Queues: what is ready, what is leased, and the dead letters with a way back.
import * as api from "../api.js";
import * as feed from "../feed.js";
import { button, chip, clear, confirmTyped, count, dialog, empty, field, h, head, table, tile, toast, clock } from "../ui.js";
import { peek, visible } from "../payload.js";

export async function show(view) {
  const tiles = h("div", { class: "grid tight" }), box = h("section", { class: "card flush" }), letters = h("div", { class: "stack" });
  clear(view.root, head("Queues", "Jobs that workers lease. What fails too often becomes a dead letter; Replay sends it back."), tiles, box, letters);
  let queues = [];
  const look = async () => {
    const names = [...feed.streams.values()].filter(s => s.kind === "queue").map(s => s.name).sort();
    queues = await Promise.all(names.slice(0, 200).map(name => api.get(api.topic(name, "?touch=false"))));
    if (!view.left) draw();
  };
  const draw = () => {
    const sum = key => queues.reduce((all, each) => all + (each.queue[key] || 0), 0);
    clear(tiles, tile("Queues", count(queues.length)), tile("Ready", count(sum("ready"))), tile("In flight", count(sum("in_flight"))), tile("Dead-lettered", count(sum("dead_lettered")), "since the start"));
    clear(box, queues.length ? table("Queues", [
      { title: "Queue", class: "name", cell: q => h("a", { href: `#/stream/${encodeURIComponent(q.topic)}` }, q.topic) },
      { title: "Ready", num: true, cell: q => count(q.queue.ready) },
      { title: "In flight", num: true, cell: q => count(q.queue.in_flight) },
      { title: "Dead-lettered", num: true, cell: q => count(q.queue.dead_lettered) },
      { title: "Deliveries", num: true, cell: q => q.config.max_deliveries || "no end" },
      { title: "Dead letters go to", cell: q => q.config.dead_letter ? h("a", { href: `#/stream/${encodeURIComponent(q.config.dead_letter)}` }, q.config.dead_letter) : chip("nowhere", "warn") },
      { title: "", cell: q => q.config.dead_letter && h("div", { class: "row" }, button("Dead letters", () => showLetters(q), "small"),
        api.may("write") && api.may("delete") && button("Replay", () => replay(q.config.dead_letter, {}, q.topic), "small primary")) },
    ], queues) : empty("No queues", "A topic of the type queue hands out jobs.", `curl -X PUT ${location.origin}/v0/topics/jobs -H 'content-type: application/json' \\\n  -d '{"type":"queue","max_deliveries":3,"dead_letter":"jobs-dead"}'`));
  };
  const showLetters = async q => {
    const name = q.config.dead_letter;
    let page = { records: [] };
    try { page = await api.post(api.topic(name, "/browse"), { limit: 100 }); } catch (error) { if (error.status !== 404) throw error; }
    clear(letters, h("section", { class: "card flush" }, h("header", null, h("h2", null, `Dead letters in ${name}`)), page.records.length ? table("Dead letters", [
      { title: "Sequence", num: true, cell: m => count(m.seq) }, { title: "Time", cell: m => clock(m.ts) },
      { title: "From", cell: m => why(m, "$dead_letter_from") }, { title: "Deliveries", num: true, cell: m => why(m, "$dead_letter_deliveries") },
      { title: "Data", class: "wrap mono", cell: m => peek(m).slice(0, 160) },
      { title: "", cell: m => api.may("write") && api.may("delete") && button("Replay", () => replay(name, { seqs: [m.seq] }, q.topic, () => showLetters(q)), "small") },
    ], page.records) : empty("No dead letters", "Every job went well, or is still being tried.")));
  };
  const replay = async (name, wish, queue, again) => {
    let said;
    try { said = await api.post(api.topic(name, "/redrive"), wish); }
    catch (error) { toast(error.message, true); return; }
    toast(`Sent ${count(said.redriven ?? said.count ?? 0)} dead letters back to ${queue}`);
    if (again) await again(); await look();
  };
  if (!feed.server && !feed.streams.size) await new Promise(done => setTimeout(done, 1100));
  await look();
  view.every(2000, async () => { if (!box.contains(document.activeElement)) await look(); });
}
const why = (message, key) => { try { return visible(String(JSON.parse(message.meta)[key] ?? "–")); } catch { return "–"; } };
