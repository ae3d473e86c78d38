// Overview: is it well, how much moves, and where.
import * as api from "../api.js";
import * as feed from "../feed.js";
import { legend, lines, spark } from "../charts.js";
import { bytes, card, chip, clear, count, empty, h, head, short, span, table, tile } from "../ui.js";

export async function show(view) {
  const health = h("div"), tiles = h("div", { class: "grid tight" }), charts = h("div", { class: "grid two" });
  const streams = h("section", { class: "card flush" }), connections = h("section", { class: "card flush" });
  const wide = api.me.whole_server;
  clear(view.root, head("Overview", wide ? "The whole server, once a second." : "The streams that your credential may see."),
    wide && health, tiles, wide && charts, h("div", { class: "split" }, streams, wide && connections));
  const draw = () => {
    if (wide && feed.server) { drawHealth(health); drawTiles(tiles); drawCharts(charts); }
    if (!wide) clear(tiles, tile("Streams", count(feed.total)), tile("Messages", short(sum("messages"))), tile("Stored", bytes(sum("bytes"))), tile("Written", short(sum("rate")) + "/s"));
    drawStreams(streams);
  };
  const look = async () => drawConnections(connections, (await api.get("/connz?sort=bytes_to&limit=8")).connections);
  view.live(draw); draw();
  if (wide) { view.every(3000, look); look().catch(() => {}); }
}

const sum = name => [...feed.streams.values()].reduce((all, each) => all + each[name], 0);

function drawHealth(box) {
  const found = feed.server.problems;
  const words = found.length ? found.map(each => h("li", null, each)) : null;
  const key = found.join("\n");
  if (box.dataset.key === key) return;
  box.dataset.key = key;
  clear(box, found.length
    ? h("div", { class: "problem", role: "alert" }, h("strong", null, "The server needs attention"), h("ul", null, words))
    : h("div", { class: "notice" }, h("strong", null, "Healthy. "), "Every thread runs, the log takes writes, nothing was lost."));
}

function drawTiles(box) {
  const s = feed.server, syncs = feed.now("syncs"), mean = syncs ? feed.now("sync_us") / syncs / 1000 : 0;
  clear(box,
    tile("In", short(feed.now("nats_in_msgs")) + "/s", `${bytes(feed.now("nats_in_bytes"))}/s over NATS`),
    tile("Out", short(feed.now("nats_out_msgs")) + "/s", `${bytes(feed.now("nats_out_bytes"))}/s over NATS`),
    tile("HTTP", short(feed.now("http_requests")) + "/s", `${bytes(feed.now("http_out_bytes"))}/s answered`),
    tile("Commit", syncs ? `${mean.toFixed(2)} ms` : "idle", `${short(syncs)} syncs/s, p99 ${p99()}`),
    tile("Loop hold", `${(s.loop_ms || 0).toFixed(1)} ms`, "longest in the last second"),
    tile("Pressure", `${Math.round(s.pressure * 100)} %`, s.rung === "none" ? "nothing is given up" : `measure: ${s.rung}`),
    tile("Processor", `${s.cpu} %`, "of one core"),
    tile("Memory", bytes(s.rss), "resident"),
    tile("Disk", s.disk_total ? `${Math.round(s.disk_used / s.disk_total * 100)} %` : "–", `${bytes(s.disk_total - s.disk_used)} free`),
    tile("Clients", count(s.connections), `${count(s.http_streams)} event streams`),
    tile("Streams", count(feed.total), `${short(sum("messages"))} messages, ${bytes(sum("bytes"))}`),
    tile("Up", span(s.uptime), `${count(s.slow_consumers)} slow consumers`));
}

function p99() {
  const last = feed.past[feed.past.length - 1], first = feed.past.slice(-60)[0];
  if (!last || !last.sync_counts || !first || !first.sync_counts) return "–";
  const grown = last.sync_counts.map((value, at) => value - first.sync_counts[at]);
  const all = grown.reduce((a, b) => a + b, 0);
  if (!all) return "–";
  let seen = 0;
  for (let at = 0; at < grown.length; at++) {
    seen += grown[at];
    if (seen >= all * .99) return at < last.sync_bounds_us.length ? `≤ ${last.sync_bounds_us[at] / 1000} ms` : `> ${last.sync_bounds_us.at(-1) / 1000} ms`;
  }
  return "–";
}

function drawCharts(box) {
  const across = box.clientWidth || 900, columns = across >= 896 ? 2 : 1;
  const width = Math.round((across - 16 * (columns - 1)) / columns) - 34;
  const chart = (title, series, format) => card(title, lines(series, { format, label: title, width }), legend(series.map(each => ({ name: each.name, now: format(each.values.at(-1) ?? 0) }))));
  const per = value => short(value) + "/s", size = value => bytes(Math.round(value)) + "/s";
  clear(box,
    chart("Messages", [{ name: "NATS in", values: feed.rates("nats_in_msgs") }, { name: "NATS out", values: feed.rates("nats_out_msgs") }, { name: "HTTP requests", values: feed.rates("http_requests") }], per),
    chart("Bytes", [{ name: "NATS in", values: feed.rates("nats_in_bytes") }, { name: "NATS out", values: feed.rates("nats_out_bytes") }, { name: "Log written", values: feed.rates("wal_bytes") }], size),
    chart("Loop and pressure", [{ name: "Loop hold, ms", values: feed.values("loop_ms") }, { name: "Pressure, %", values: feed.values("pressure").map(v => v * 100) }], short),
    chart("Processor", [{ name: "% of a core", values: feed.values("cpu") }], value => `${short(value)} %`));
}

function drawStreams(box) {
  const top = [...feed.streams.values()].sort((a, b) => b.rate - a.rate || b.at - a.at).slice(0, 8);
  clear(box, h("header", null, h("h2", null, "Busiest streams"), h("a", { href: "#/streams" }, "All streams")), top.length ? table("Busiest streams", [
    { title: "Stream", class: "name", cell: s => h("a", { href: `#/stream/${encodeURIComponent(s.name)}` }, s.name) },
    { title: "Rate", num: true, cell: s => short(s.rate) + "/s" },
    { title: "Last minute", cell: s => spark(s.trail, `Rate of ${s.name}`) },
    { title: "Messages", num: true, cell: s => short(s.messages) },
    { title: "Size", num: true, cell: s => bytes(s.bytes) },
  ], top) : empty("No streams yet", "Create one, or publish something over HTTP.", "millstream pub orders.new '{\"id\":1}'"));
}

function drawConnections(box, found) {
  clear(box, h("header", null, h("h2", null, "Busiest connections"), h("a", { href: "#/connections" }, "All connections")), found.length ? table("Busiest connections", [
    { title: "Client", class: "name", cell: c => c.name || `${c.ip}:${c.port}` },
    { title: "Language", cell: c => c.lang ? chip(`${c.lang} ${c.version || ""}`) : "–" },
    { title: "Received", num: true, cell: c => bytes(c.out_bytes) },
    { title: "Waiting", num: true, cell: c => bytes(c.pending_bytes) },
  ], found) : empty("No clients", "Nobody is connected over NATS."));
}
