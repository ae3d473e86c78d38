// One feed for the whole page: the server looks around once a second, we remember what it saw.
import { get, headers } from "./api.js";

export const streams = new Map();   // name → { name, kind, messages, bytes, first, last, consumers, at, rate }
export const past = [];             // looks at the server, oldest first
export let server = null, total = 0, connected = false;
const KEPT = 300;
const listeners = new Set();
let stopped = null;

export function listen(call) { listeners.add(call); return () => listeners.delete(call); }
const tell = () => { for (const call of [...listeners]) call(); };

export async function start() {
  stop();
  const mine = stopped = new AbortController();
  past.length = 0; streams.clear(); server = null;
  try { past.push(...(await get("/v0/feed/past")).samples); } catch { /* a scoped key has no server */ }
  run(mine);
}
export function stop() { if (stopped) stopped.abort(); stopped = null; connected = false; }

async function run(mine) {
  let wait = 500;
  while (!mine.signal.aborted) {
    try {
      const answer = await fetch("/v0/feed", { headers: { ...headers(), accept: "text/event-stream" }, signal: mine.signal, cache: "no-store" });
      if (answer.status === 401) { dispatchEvent(new CustomEvent("logged-out")); return; }
      if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
      wait = 500;
      await follow(answer.body.getReader());
    } catch { /* connect again below */ }
    if (mine.signal.aborted) return;
    connected = false; tell();
    await new Promise(done => setTimeout(done, wait));
    wait = Math.min(wait * 2, 8000);
  }
}

async function follow(reader) {
  const decoder = new TextDecoder(); let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += decoder.decode(value, { stream: true });
    let end;
    while ((end = rest.indexOf("\n\n")) >= 0) {
      event(rest.slice(0, end)); rest = rest.slice(end + 2);
    }
  }
}

function event(text) {
  const data = text.split("\n").filter(line => line.startsWith("data: ")).map(line => line.slice(6)).join("\n");
  if (!text.startsWith("event: sample") || !data) return;
  take(JSON.parse(data));
  connected = true; tell();
}

function take(look) {
  const seen = new Set();
  const fresh = [];
  for (const [name, kind, messages, size, first, last, consumers, at] of look.streams) {
    const known = streams.get(name);
    const seconds = known ? Math.max((look.t - known.seenAt) / 1000, .001) : 1;
    const rate = known && last >= known.last ? (last - known.last) / seconds : 0;
    const trail = known ? known.trail : [];
    streams.set(name, { name, kind, messages, bytes: size, first, last, consumers, at, rate, trail, seenAt: look.t });
    seen.add(name); fresh.push(name);
  }
  for (const one of streams.values()) {
    if (!seen.has(one.name)) {
      if (look.full) { streams.delete(one.name); continue; }
      one.rate = 0; one.seenAt = look.t;
    }
    one.trail.push(one.rate); if (one.trail.length > 60) one.trail.shift();
  }
  for (const name of look.gone || []) streams.delete(name);
  total = look.total;
  if (look.server) {
    server = { t: look.t, ...look.server };
    past.push(server); if (past.length > KEPT) past.shift();
  }
}

// The rate per second of a figure that only grows, over the looks that are kept.
export function rates(name) {
  const found = [];
  for (let at = 1; at < past.length; at++) {
    const grown = past[at][name] - past[at - 1][name], seconds = (past[at].t - past[at - 1].t) / 1000;
    found.push(grown >= 0 && seconds > 0 ? grown / seconds : 0);
  }
  return found;
}
export const values = name => past.map(look => look[name] ?? 0);
export const now = name => { const found = rates(name); return found.length ? found[found.length - 1] : 0; };
