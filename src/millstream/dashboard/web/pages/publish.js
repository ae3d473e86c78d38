// Publish and request, as any client would; what was typed can be taken along as a command.
import * as api from "../api.js";
import { commands } from "../commands.js";
import { payload } from "../payload.js";
import { button, bytes, card, check, clear, copy, empty, facts, field, h, head, problem, toast } from "../ui.js";

export async function show(view) {
  const first = (view.query.get("subject") || "").replace(/[*>]/g, "new");
  const subject = h("input", { type: "text", required: true, placeholder: "orders.new", value: first || view.query.get("stream") || "", autocomplete: "off" });
  const text = h("textarea", { rows: "10", spellcheck: "false" }); text.value = '{"id": 1}';
  const headers = h("textarea", { rows: "3", spellcheck: "false", placeholder: "Nats-Msg-Id: 17" }); headers.style.minHeight = "64px";
  const isBytes = check("The payload is base64", false), ack = check("Wait until a stream has stored it", true);
  const wait = h("input", { type: "number", min: "1", value: "2000" });
  const answer = h("div", null, empty("No answer yet", "What the server says shows up here."));
  const read = () => {
    const pairs = headers.value.split("\n").filter(line => line.includes(":")).map(line => { const at = line.indexOf(":"); return [line.slice(0, at).trim(), line.slice(at + 1).trim()]; });
    const body = { subject: subject.value.trim(), timeout_ms: Number(wait.value) || 2000 };
    if (isBytes.box.checked) body.base64 = text.value.trim(); else body.text = text.value;
    if (pairs.length) body.headers = Object.fromEntries(pairs);
    return { body, pairs };
  };
  const send = async act => {
    clear(answer, h("div", { class: "skeleton" }));
    try { clear(answer, await act(read().body)); }
    catch (error) { clear(answer, problem(error), error.status === 403 ? h("p", { class: "soft" }, "Your credential may not send there.") : null); }
  };
  const publish = () => send(async body => {
    const said = await api.post("/v0/publish", { ...body, ack: ack.box.checked });
    toast("Published");
    return said.ack ? facts([["Stored in", h("a", { href: `#/stream/${encodeURIComponent(said.ack.stream)}` }, said.ack.stream)], ["Sequence", String(said.ack.seq)], said.ack.duplicate && ["Duplicate", "yes: it was stored before"], ["Size", bytes(said.size)]])
      : facts([["Received by", `${said.receivers} subscriptions`], ["Size", bytes(said.size)]]);
  });
  const request = () => send(async body => {
    const said = await api.post("/v0/request", body);
    return h("div", { class: "stack" }, said.replies.map(each => h("div", { class: "stack" }, facts([["Size", bytes(each.size)], each.status && ["Status", String(each.status)], ...(each.headers || [])]), payload(each))));
  });
  const copies = ["curl", "millstream", "nats-py"].map((words, at) => button(`Copy as ${words}`, () => {
    const { body, pairs } = read();
    copy(commands({ subject: body.subject, text: body.text, base64: body.base64, headers: pairs })[at][1], `Copied as ${words}`);
  }, "small"));
  const form = h("form", { class: "card stack" }, field("Subject", subject), field("Payload", text), isBytes, field("Headers", headers, "one on each line"),
    h("div", { class: "form" }, ack, field("Answer within", wait, "milliseconds")),
    h("div", { class: "row" }, h("button", { type: "submit", class: "primary" }, "Publish"), button("Send as request", request)), h("div", { class: "row" }, copies));
  form.addEventListener("submit", event => { event.preventDefault(); publish(); });
  clear(view.root, head("Publish & request", "Send a message to a subject, or ask and wait for the answer."),
    api.may("write") ? h("div", { class: "split" }, form, card("Answer", answer)) : h("div", { class: "card" }, empty("Nothing to send with", "Your credential lacks the scope write.")));
}
