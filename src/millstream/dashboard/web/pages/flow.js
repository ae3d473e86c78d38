// Flow: routers, mirrors, sources, dead letters and other servers as one picture.
import * as api from "../api.js";
import * as feed from "../feed.js";
import { chip, clear, count, empty, h, head, short, table } from "../ui.js";

const WIDTH = 190, HEIGHT = 46, ACROSS = 330, DOWN = 74;

export async function show(view) {
  const picture = h("section", { class: "card" }), list = h("section", { class: "card flush" });
  clear(view.root, head("Flow", "How records move between streams, and to other servers."), picture, list);
  let edges = [], before = new Map(), members = [];
  const paced = (edge, now) => {  // with how many records a second it has moved since the last look
    const key = `${edge.kind} ${edge.name || ""} ${edge.from} ${edge.to}`, known = before.get(key);
    if (edge.total === undefined) return { ...edge, key };
    before.set(key, { total: edge.total, at: now });
    return { ...edge, key, rate: known ? Math.max(0, edge.total - known.total) / ((now - known.at) / 1000) : 0 };
  };
  const look = async () => {
    const said = await api.get("/v0/flow"), links = api.me.whole_server ? await others() : [], now = performance.now();
    edges = said.edges.map(edge => paced(edge, now));
    members = links.map(edge => paced(edge, now));
    if (!view.left) draw();
  };
  const draw = () => {
    const shown = edges.map(edge => ({ ...edge, rate: edge.rate ?? (edge.kind === "dead letters" ? rateOf(edge.to) : rateOf(edge.to)) }));
    const all = [...shown, ...members];
    clear(picture, all.length ? h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Picture of the flow" }, drawing(all)) : empty("Nothing is copied", "Routers, mirrors, sources and links to other servers show up here.", `curl -X PUT ${location.origin}/v0/routers/eu -H 'content-type: application/json' \\\n  -d '{"source":"orders","dest":"orders-eu"}'`));
    clear(list, all.length ? table("Ways", [
      { title: "Way", cell: e => chip(e.kind, e.kind === "dead letters" ? "warn" : "accent") }, { title: "Name", class: "name", cell: e => e.name || "–" },
      { title: "From", cell: e => name(e.from, e.outside) }, { title: "To", cell: e => name(e.to) },
      { title: "Rate", num: true, cell: e => short(e.rate || 0) + "/s" }, { title: "Lag", num: true, cell: e => e.lag === undefined ? "–" : count(e.lag) }, { title: "Copied", num: true, cell: e => e.total === undefined ? "–" : count(e.total) }], all) : null);
    list.hidden = !all.length;
  };
  await look();
  view.every(1000, look);
}
const rateOf = stream => (feed.streams.get(stream) || {}).rate || 0;
const name = (stream, outside) => outside ? stream : feed.streams.has(stream) ? h("a", { href: `#/stream/${encodeURIComponent(stream)}` }, stream) : stream;

// Routes, leafnodes and gateways, each as a way from this server to another.
async function others() {
  const [routes, leafs, gates] = await Promise.all(["/routez", "/leafz", "/gatewayz"].map(path => api.get(path).catch(() => ({}))));
  const found = [];
  const both = (kind, there, each) => found.push({ kind, from: "this server", to: there, total: each.out_msgs }, { kind, from: there, to: "this server", total: each.in_msgs });
  for (const each of routes.routes || []) both("member", each.remote_name || each.remote_id || each.ip, each);
  for (const each of leafs.leafs || []) both("link", each.name || each.account || each.ip, each);
  for (const far of Object.keys(gates.outbound_gateways || {})) found.push({ kind: "gateway", from: "this server", to: far, rate: 0 });
  return found;
}

function drawing(edges) {
  const names = [...new Set(edges.flatMap(edge => [edge.from, edge.to]))];
  const column = layers(names, edges), rows = new Map(), place = new Map();
  for (const each of names) { const at = column.get(each), row = rows.get(at) || 0; rows.set(at, row + 1); place.set(each, { x: 10 + at * ACROSS, y: 10 + row * DOWN }); }
  const width = 20 + WIDTH + Math.max(...column.values()) * ACROSS, height = 20 + Math.max(...rows.values()) * DOWN;
  const svg = h("svg", { class: "flow", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${names.length} streams and ${edges.length} ways between them` },
    h("defs", null, marker()),
    edges.map(edge => way(edge, place.get(edge.from), place.get(edge.to))),
    names.map(each => { const at = place.get(each), s = feed.streams.get(each);
      return h("g", { class: "node" }, h("title", null, each), h("rect", { x: at.x, y: at.y, width: WIDTH, height: HEIGHT, rx: 9 }), h("text", { x: at.x + 12, y: at.y + 20 }, each.length > 25 ? each.slice(0, 24) + "…" : each),
        h("text", { class: "sub", x: at.x + 12, y: at.y + 36 }, s ? `${short(s.messages)} messages · ${short(s.rate)}/s` : "elsewhere")); }));
  svg.style.minWidth = `${Math.min(width, 640)}px`; svg.style.maxWidth = `${width}px`;
  return svg;
}
function marker() {
  const made = h("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, h("path", { class: "arrow", d: "M0 0L8 4L0 8Z" }));
  return made;
}
function way(edge, a, b) {
  const forward = b.x > a.x, x1 = a.x + (forward ? WIDTH : WIDTH / 2), y1 = a.y + (forward ? HEIGHT / 2 : HEIGHT), x2 = b.x + (forward ? 0 : WIDTH / 2), y2 = b.y + (forward ? HEIGHT / 2 : HEIGHT);
  const bend = forward ? (x2 - x1) / 2 : 0, sag = forward ? 0 : 40;
  const d = `M${x1} ${y1}C${x1 + bend} ${y1 + sag} ${x2 - bend} ${y2 + sag} ${x2} ${y2}`;
  return h("g", null, h("path", { class: edge.rate ? "edge" : "edge idle", d, "marker-end": "url(#tip)" }),
    h("text", { class: "rate", x: x2 - (forward ? 12 : 0), y: y2 - 8 + sag, "text-anchor": forward ? "end" : "middle" }, `${edge.kind} · ${short(edge.rate || 0)}/s`));
}
function layers(names, edges) {
  const found = new Map(names.map(each => [each, 0]));
  for (let turn = 0; turn < Math.min(names.length, 40); turn++) {
    let moved = false;
    for (const { from, to } of edges) if (from !== to && found.get(to) < found.get(from) + 1 && found.get(from) < 12) { found.set(to, found.get(from) + 1); moved = true; }
    if (!moved) break;
  }
  return found;
}
