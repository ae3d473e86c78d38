// Pipelines: who reads in batches and how far they are, and who writes in batches.
import * as api from "../api.js";
import * as feed from "../feed.js";
import { ago, chip, clear, count, empty, h, head, short, table, tile } from "../ui.js";

export async function show(view) {
  const tiles = h("div", { class: "grid tight" }), readers = h("section", { class: "card flush" }), sinks = h("section", { class: "card flush" });
  clear(view.root, head("Pipelines", "Spark queries and pipelines, seen from the streams that they read and write."), tiles, readers, sinks);
  const look = async () => {
    const said = await api.get("/v0/pipelines");
    if (view.left) return;
    const behind = said.readers.reduce((all, each) => all + each.num_pending, 0);
    clear(tiles, tile("Readers", count(said.readers.length)), tile("Behind", short(behind), "records, all readers"), tile("Writers", count(said.sinks.length), "that write each batch once"));
    clear(readers, h("header", null, h("h2", null, "Readers")), said.readers.length ? table("Readers", [
      { title: "Reader", class: "name", cell: r => r.name }, { title: "Kind", cell: r => chip(r.reader, "accent") }, { title: "Stream", cell: r => h("a", { href: `#/stream/${encodeURIComponent(r.stream_name)}` }, r.stream_name) },
      { title: "Read to", num: true, cell: r => count(r.ack_floor.stream_seq || r.delivered.stream_seq) }, { title: "Lag", num: true, cell: r => count(r.num_pending) },
      { title: "Progress", class: "bar-cell", cell: progress }], said.readers)
      : empty("No readers", "A Spark query shows up here once it has read a batch.", 'spark.readStream.format("millstream").option("stream", "orders").load()'));
    clear(sinks, h("header", null, h("h2", null, "Writers")), said.sinks.length ? table("Writers", [
      { title: "Writer", class: "name", cell: s => s.sink }, { title: "Stream", cell: s => h("a", { href: `#/stream/${encodeURIComponent(s.topic)}` }, s.topic) },
      { title: "Last batch", num: true, cell: s => count(s.batch) }, { title: "Records in it", num: true, cell: s => count(s.records) }, { title: "Written", num: true, cell: s => ago(s.ts) }], said.sinks)
      : empty("No writers", "Batches that Spark or a pipeline wrote exactly once show up here."));
  };
  await look();
  view.every(2000, look);
}
function progress(reader) {
  const s = feed.streams.get(reader.stream_name), all = s ? s.messages : 0;
  const part = all ? Math.max(0, Math.min(100, 100 * (1 - reader.num_pending / all))) : 100;
  return h("div", { class: "bar", role: "progressbar", "aria-valuenow": String(Math.round(part)), "aria-valuemin": "0", "aria-valuemax": "100", "aria-label": `${reader.name} has read` }, h("i", { width: `${part}%` }));
}
