// Payloads as people read them: a tree of JSON, text, bytes in hex, MessagePack.
import { bytes as sized, button, clear, h } from "./ui.js";

const MOST_TREE = 512 * 1024, MOST_TEXT = 2 * 1024 * 1024, MOST_HEX = 64 * 1024, PAGE = 200;

export function raw(message) {
  if (message.base64 !== undefined) return Uint8Array.from(atob(message.base64), c => c.charCodeAt(0));
  return new TextEncoder().encode(message.text || "");
}
export function peek(message) {
  if (message.masked && message.text) return message.text.slice(0, 300);
  const text = message.text !== undefined ? message.text.slice(0, 300) : `${sized(message.size)} of bytes`;
  return text.replace(/[\u0000-\u001f\u007f\u202a-\u202e\u2066-\u2069]/g, "·");
}
function json(message) {
  if (message.text === undefined || message.cut || message.text.length > MOST_TREE) return undefined;
  try { return JSON.parse(message.text); } catch { return undefined; }
}
function pack(message) {
  if (message.cut || message.size > MOST_TREE || !message.size) return undefined;
  if (message.text !== undefined && json(message) !== undefined) return undefined;
  try { return unpack(raw(message)); } catch { return undefined; }
}

export function payload(message) {
  const kinds = [];
  const value = json(message);
  if (value !== undefined && typeof value === "object" && value !== null) kinds.push(["JSON", () => tree(value)]);
  const packed = message.text === undefined || /[\u0000-\u0008\u000e-\u001f]/.test(message.text) ? pack(message) : undefined;
  if (packed !== undefined) kinds.push(["MessagePack", () => tree(packed.value)]);
  if (message.text !== undefined) kinds.push(["Text", () => h("pre", null, visible(message.text.slice(0, MOST_TEXT)), message.text.length > MOST_TEXT ? "\n… cut here" : "")]);
  kinds.push(["Hex", () => h("pre", null, hex(raw(message)))]);
  const shown = h("div", { class: "payload", tabindex: "0", role: "region", "aria-label": "Payload" });
  const row = h("div", { class: "row", role: "group", "aria-label": "Show the payload as" });
  const choose = at => {
    clear(shown, kinds[at][1]());
    [...row.children].forEach((each, n) => each.setAttribute("aria-pressed", String(n === at)));
  };
  row.append(...kinds.map(([words], at) => button(words, () => choose(at), "small")));
  choose(0);
  return h("div", { class: "stack" }, row, shown);
}

// Control characters, and those that turn the direction of text, are shown and not obeyed.
export const visible = text => text.replace(/[\u0000-\u0008\u000b-\u001f\u007f\u202a-\u202e\u2066-\u2069]/g,
  c => c.charCodeAt(0) < 32 ? String.fromCharCode(0x2400 + c.charCodeAt(0)) : `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

export function hex(data) {
  const lines = [];
  for (let at = 0; at < Math.min(data.length, MOST_HEX); at += 16) {
    const part = [...data.subarray(at, at + 16)];
    lines.push(`${at.toString(16).padStart(8, "0")}  ${part.map(b => b.toString(16).padStart(2, "0")).join(" ").padEnd(47)}  ${part.map(b => b > 31 && b < 127 ? String.fromCharCode(b) : ".").join("")}`);
  }
  if (data.length > MOST_HEX) lines.push(`… ${data.length - MOST_HEX} bytes more`);
  return lines.join("\n") || "(empty)";
}

export const tree = value => h("div", { class: "tree" }, node("", value, true));

function node(name, value, wide) {
  const key = name === "" ? null : [h("span", { class: "key" }, visible(String(name))), ": "];
  if (value === null || typeof value !== "object" || value instanceof Uint8Array) return h("div", null, key, leaf(value));
  const entries = Array.isArray(value) ? value.map((each, at) => [at, each]) : Object.entries(value);
  const words = Array.isArray(value) ? `[ ${entries.length} ]` : `{ ${entries.length} }`;
  const list = h("ul");
  const made = h("details", null, h("summary", null, key, h("span", { class: "soft" }, words)), list);
  let drawn = 0;
  const more = () => {
    list.append(...entries.slice(drawn, drawn + PAGE).map(([k, v]) => h("li", null, node(k, v, false))));
    drawn += PAGE;
    if (drawn < entries.length) {
      const next = button(`${entries.length - drawn} more`, () => { next.parentNode.remove(); more(); }, "small");
      list.append(h("li", null, next));
    }
  };
  made.addEventListener("toggle", () => { if (made.open && !drawn) more(); });
  if (wide) { made.open = true; more(); drawn = Math.max(drawn, 1); }
  return made;
}
function leaf(value) {
  if (typeof value === "string") return h("span", { class: "string" }, JSON.stringify(visible(value)).slice(0, 100000));
  if (typeof value === "number" || typeof value === "bigint") return h("span", { class: "number" }, String(value));
  if (value instanceof Uint8Array) return h("span", { class: "word" }, `<${value.length} bytes>`);
  return h("span", { class: "word" }, String(value));
}

// MessagePack, all of its forms; extensions show their type and bytes.
export function unpack(data) {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  let at = 0, depth = 0;
  const need = size => { if (at + size > data.length) throw new Error("too short"); const from = at; at += size; return from; };
  const text = size => new TextDecoder("utf-8", { fatal: true }).decode(data.subarray(need(size), at));
  const blob = size => data.slice(need(size), at);
  const list = size => { if (size > data.length) throw new Error("too long"); return Array.from({ length: size }, read); };
  const map = size => { if (size > data.length) throw new Error("too long"); const made = {}; for (let n = 0; n < size; n++) { const key = read(); Object.defineProperty(made, String(key), { value: read(), enumerable: true, configurable: true }); } return made; };
  const ext = size => { const kind = view.getInt8(need(1)); return { "ext type": kind, bytes: blob(size) }; };
  const whole = big => big <= BigInt(Number.MAX_SAFE_INTEGER) && big >= BigInt(Number.MIN_SAFE_INTEGER) ? Number(big) : big;
  function read() {
    if (++depth > 200) throw new Error("too deep");
    try { return one(); } finally { depth--; }
  }
  function one() {
    const c = data[need(1)];
    if (c < 0x80) return c;
    if (c < 0x90) return map(c & 15);
    if (c < 0xa0) return list(c & 15);
    if (c < 0xc0) return text(c & 31);
    if (c >= 0xe0) return c - 256;
    switch (c) {
      case 0xc0: return null; case 0xc2: return false; case 0xc3: return true;
      case 0xc4: return blob(view.getUint8(need(1))); case 0xc5: return blob(view.getUint16(need(2))); case 0xc6: return blob(view.getUint32(need(4)));
      case 0xc7: return ext(view.getUint8(need(1))); case 0xc8: return ext(view.getUint16(need(2))); case 0xc9: return ext(view.getUint32(need(4)));
      case 0xca: return view.getFloat32(need(4)); case 0xcb: return view.getFloat64(need(8));
      case 0xcc: return view.getUint8(need(1)); case 0xcd: return view.getUint16(need(2)); case 0xce: return view.getUint32(need(4)); case 0xcf: return whole(view.getBigUint64(need(8)));
      case 0xd0: return view.getInt8(need(1)); case 0xd1: return view.getInt16(need(2)); case 0xd2: return view.getInt32(need(4)); case 0xd3: return whole(view.getBigInt64(need(8)));
      case 0xd4: return ext(1); case 0xd5: return ext(2); case 0xd6: return ext(4); case 0xd7: return ext(8); case 0xd8: return ext(16);
      case 0xd9: return text(view.getUint8(need(1))); case 0xda: return text(view.getUint16(need(2))); case 0xdb: return text(view.getUint32(need(4)));
      case 0xdc: return list(view.getUint16(need(2))); case 0xdd: return list(view.getUint32(need(4)));
      case 0xde: return map(view.getUint16(need(2))); case 0xdf: return map(view.getUint32(need(4)));
      default: throw new Error("not MessagePack");
    }
  }
  const value = read();
  if (at !== data.length) throw new Error("more behind the end");
  if (typeof value !== "object" || value === null) throw new Error("nothing to show as a tree");
  return { value };
}
