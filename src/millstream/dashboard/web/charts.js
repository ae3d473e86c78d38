// Charts as SVG, drawn from plain lists of numbers.
import { h, short } from "./ui.js";

// series: [{ name, values }]; all share one scale.
export function lines(series, { format = short, label = "Chart", height = 160, width = 600 } = {}) {
  const left = 62, bottom = 16, top = 8;
  const most = Math.max(1e-9, ...series.flatMap(each => each.values.filter(Number.isFinite)));
  const peak = nice(most);
  const y = value => top + (height - bottom - top) * (1 - value / peak);
  const longest = Math.max(2, ...series.map(each => each.values.length));
  const x = (at, length) => left + (width - left - 4) * ((longest - length + at) / (longest - 1));
  const newest = series.map(each => `${each.name} ${format(each.values[each.values.length - 1] ?? 0)}`).join(", ");
  return h("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${label}: ${newest}` },
    [0, .5, 1].map(part => [
      h("line", { class: "axis", x1: left, x2: width, y1: y(peak * part), y2: y(peak * part) }),
      h("text", { x: left - 6, y: y(peak * part) + 3.5, "text-anchor": "end" }, format(peak * part)),
    ]),
    series.map((each, n) => each.values.length > 1 && [
      n === 0 && h("path", { class: `area s${n}`, d: path(each.values, x, y) + `L${width - 4} ${y(0)}L${x(0, each.values.length)} ${y(0)}Z` }),
      h("path", { class: `s${n}`, d: path(each.values, x, y) }),
    ]));
}
function path(values, x, y) {
  return values.map((value, at) => `${at ? "L" : "M"}${x(at, values.length).toFixed(1)} ${y(Number.isFinite(value) ? value : 0).toFixed(1)}`).join("");
}
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map(step => step * power).find(step => step >= value * .999) || value;
}
export const legend = series => h("div", { class: "legend" }, series.map((each, n) =>
  h("span", null, h("i", { class: `k${n}` }), each.name, each.now !== undefined ? ` ${each.now}` : "")));

export function spark(values, label) {
  const width = 120, height = 34, most = Math.max(1e-9, ...values);
  const kept = values.length > 1 ? values : [0, 0];
  const d = kept.map((value, at) => `${at ? "L" : "M"}${(at / (kept.length - 1) * width).toFixed(1)} ${(height - 3 - value / most * (height - 6)).toFixed(1)}`).join("");
  return h("svg", { class: "chart small", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, h("path", { class: "s0", d, fill: "none" }));
}
