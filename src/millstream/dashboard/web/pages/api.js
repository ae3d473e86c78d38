// The API, from its own description; every operation can be tried here.
import * as api from "../api.js";
import { button, chip, clear, copy, empty, field, h, head, problem } from "../ui.js";

export async function show(view) {
  const described = await api.get("/openapi.json");
  const operations = Object.entries(described.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, op]) => ({ path, method, op })));
  const list = h("nav", { class: "card flush ops", "aria-label": "Operations" }), shown = h("div", { class: "stack" });
  const search = h("input", { type: "search", placeholder: "Find an operation", "aria-label": "Find an operation" });
  clear(view.root, head("API", `${operations.length} operations. What this page does, you can do too.`, search, h("a", { class: "button", href: "/openapi.json" }, "openapi.json")),
    h("div", { class: "try" }, list, shown));
  const chosen = view.args[0] || "get_v0_topics";
  const draw = () => {
    const words = search.value.toLowerCase();
    clear(list, operations.filter(({ path, method, op }) => `${method} ${path} ${op.summary}`.toLowerCase().includes(words)).map(({ path, method, op }) =>
      h("a", { href: `#/api/${op.operationId}`, "aria-current": op.operationId === chosen ? "page" : null, title: op.summary }, h("span", { class: `verb ${method}` }, method.toUpperCase()), h("span", { class: "wrap" }, path))));
  };
  search.addEventListener("input", draw); draw();
  const one = operations.find(({ op }) => op.operationId === chosen);
  clear(shown, one ? operation(described, one) : empty("No such operation"));
}

function operation(described, { path, method, op }) {
  const inputs = (op.parameters || []).map(p => ({ ...p, input: h("input", { type: "text", placeholder: p.schema.type || "text", value: String(p.example ?? "") }) }));
  const media = op.requestBody && Object.keys(op.requestBody.content)[0];
  const content = media && op.requestBody.content[media];
  const body = media ? h("textarea", { rows: "8", spellcheck: "false" }) : null;
  if (body) body.value = content.example !== undefined ? (typeof content.example === "string" ? content.example : JSON.stringify(content.example, null, 2)) : media === "application/json" ? "{}" : "";
  const answer = h("div");
  const address = () => {
    let url = path;
    const query = new URLSearchParams();
    for (const { name, in: place, input } of inputs) {
      if (place === "path") url = url.replace(`{${name}}`, encodeURIComponent(input.value));
      else if (place === "query" && input.value) query.set(name, input.value);
    }
    return url + (String(query) ? `?${query}` : "");
  };
  const send = async () => {
    clear(answer, h("div", { class: "skeleton" }));
    const init = { method: method.toUpperCase(), headers: { ...api.headers() }, cache: "no-store" };
    for (const { name, in: place, input } of inputs) if (place === "header" && input.value) init.headers[name] = input.value;
    if (body && body.value) { init.body = body.value; init.headers["content-type"] = media; }
    try {
      const began = performance.now(), abort = new AbortController();
      const timer = setTimeout(() => abort.abort(), 5000);
      const got = await fetch(address(), { ...init, signal: abort.signal });
      const text = await readSome(got, abort);
      clearTimeout(timer);
      let pretty = text; try { pretty = JSON.stringify(JSON.parse(text), null, 2); } catch { /* as it is */ }
      clear(answer, h("div", { class: "row" }, chip(`${got.status} ${got.statusText}`, got.ok ? "good" : "bad"), chip(`${Math.round(performance.now() - began)} ms`)), h("div", { class: "payload", tabindex: "0", role: "region", "aria-label": "Answer" }, h("pre", null, pretty.slice(0, 200000))));
    } catch (error) { clear(answer, problem(error)); }
  };
  const form = h("form", { class: "card stack" }, h("div", null, h("div", { class: "row" }, h("span", { class: `verb ${method}` }, method.toUpperCase()), h("code", { class: "wrap" }, path)), h("h2", null, op.summary), h("p", { class: "soft" }, op.description || ""),
    h("div", { class: "row" }, (op.security && op.security[0] ? op.security[0].key : []).map(s => chip(`needs ${s}`, "accent")))),
  inputs.length ? h("div", { class: "form" }, inputs.map(p => field(p.name, p.input, `${p.in}${p.required ? ", needed" : ""}`))) : null,
  body && field("Body", body, media),
  h("div", { class: "row" }, h("button", { type: "submit", class: "primary" }, "Send"), button("Copy as curl", () => copy(`curl -s -X ${method.toUpperCase()} '${location.origin}${address()}'${body && body.value ? ` -H 'content-type: ${media}' -d '${body.value.replaceAll("'", `'\\''`)}'` : ""}`), "small")));
  form.addEventListener("submit", event => { event.preventDefault(); send(); });
  const wanted = content && content.schema && content.schema.$ref ? content.schema.$ref.split("/").pop() : null;
  return [form, h("section", { class: "card", "aria-live": "polite" }, h("header", null, h("h2", null, "Answer")), answer),
    wanted && h("details", { class: "card" }, h("summary", null, `Shape of the body: ${wanted}`), h("pre", { tabindex: "0" }, JSON.stringify(described.components.schemas[wanted], null, 2)))].filter(Boolean);
}

// Streams never end: what came within some seconds is shown.
async function readSome(got, abort) {
  if (!(got.headers.get("content-type") || "").includes("event-stream")) return got.text();
  const reader = got.body.getReader(), decoder = new TextDecoder(); let text = "";
  setTimeout(() => abort.abort(), 2500);
  try { for (;;) { const { done, value } = await reader.read(); if (done || text.length > 100000) break; text += decoder.decode(value, { stream: true }); } } catch { /* cut on purpose */ }
  return text;
}
