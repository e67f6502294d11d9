// Charts as SVG: lines over time, and bars. Colours are classes of the style sheet, so that they follow the theme.
import { element, number } from "/static/horae.js";

const LEFT = 64, RIGHT = 16, TOP = 12, BOTTOM = 28;
const svg = (tag, attributes, ...children) => element(`svg:${tag}`, attributes, ...children);

/** About `count` round values from `low` to `high`. */
export function ticks(low, high, count = 5) {
  const rough = (high - low) / count;
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) {
    found.push(Math.abs(value) < step * 1e-9 ? 0 : value);
  }
  return found;
}

/**
 * Lines in one chart. series: [{ name, points: [[x, y], ...], steps (drawn as stairs), dashed }]. options: label (for
 * readers of screens), x and y (formats), from (lowest y; otherwise of the data), lines: [{ y, name }], height, xs (the extent of x).
 * A y of null leaves a gap.
 */
export function lineChart(place, series, options = {}) {
  const all = series.flatMap((each) => each.points.filter(([, y]) => y !== null && Number.isFinite(y)));
  if (all.length === 0) {
    place.replaceChildren(element("p", { class: "empty" }, options.empty ?? "No data yet."));
    return;
  }
  const width = Math.max(320, place.clientWidth || 640), height = options.height ?? 220;
  const format = { x: options.x ?? number, y: options.y ?? number };
  const marked = (options.lines ?? []).map((line) => line.y);
  const xs = options.xs ?? extent(all.map(([x]) => x));
  const ys = extent([...all.map(([, y]) => y), ...marked, ...(options.from === undefined ? [] : [options.from])]);
  const toX = (x) => LEFT + ((x - xs[0]) / (xs[1] - xs[0])) * (width - LEFT - RIGHT);
  const toY = (y) => height - BOTTOM - ((y - ys[0]) / (ys[1] - ys[0])) * (height - TOP - BOTTOM);
  const chart = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": options.label ?? series.map((each) => each.name).join(", ") });
  for (const y of ticks(...ys, 4)) {
    chart.append(svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: toY(y), y2: toY(y) }),
      svg("text", { x: LEFT - 8, y: toY(y) + 4, "text-anchor": "end" }, format.y(y)));
  }
  const count = Math.max(2, Math.floor((width - LEFT) / 130));
  for (const x of options.xTicks?.(...xs, count) ?? ticks(...xs, count)) {
    chart.append(svg("text", { x: toX(x), y: height - 8, "text-anchor": "middle" }, format.x(x)));
  }
  for (const { y, name } of options.lines ?? []) {
    chart.append(svg("line", { class: "marked", x1: LEFT, x2: width - RIGHT, y1: toY(y), y2: toY(y) }),
      svg("text", { class: "marked", x: width - RIGHT, y: toY(y) - 4, "text-anchor": "end" }, name));
  }
  series.forEach((each, index) => {
    const path = pathOf(each, toX, toY);
    chart.append(svg("path", { class: `line series-${index % 8}${each.dashed ? " dashed" : ""}`, d: path }));
    if (each.points.length === 1) {
      const [x, y] = each.points[0];
      chart.append(svg("circle", { class: `dot series-${index % 8}`, cx: toX(x), cy: toY(y), r: 3 }));
    }
  });
  place.replaceChildren(chart, ...(series.length > 1 || options.legend ? [legend(series)] : []));
  readout(place, chart, series, { toX, width, height, format });
}

function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low === 0 && high === 0) return [0, 1];
  return low === high ? [low - (Math.abs(low) || 1) * 0.05, high + (Math.abs(high) || 1) * 0.05] : [low, high];
}

function pathOf({ points, steps }, toX, toY) {
  let path = "", before = null;
  for (const [x, y] of points) {
    if (y === null || !Number.isFinite(y)) before = null;
    else {
      const at = `${toX(x).toFixed(1)},${toY(y).toFixed(1)}`;
      if (before === null) path += `M${at}`;
      else path += steps ? `H${toX(x).toFixed(1)}V${toY(y).toFixed(1)}` : `L${at}`;
      before = at;
    }
  }
  return path;
}

export const legend = (series) => element("ul", { class: "legend" }, series.map((each, index) =>
  element("li", {}, element("span", { class: `swatch series-${index % 8}${each.dashed ? " dashed" : ""}` }), each.name)));

/** Shows the values under the pointer. */
function readout(place, chart, series, { toX, width, height, format }) {
  const line = svg("line", { class: "pointer", y1: TOP, y2: height - BOTTOM, visibility: "hidden" });
  const text = element("p", { class: "readout", "aria-hidden": "true" }, "\u00a0");
  chart.append(line);
  place.append(text);
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * width;
    const near = series.map((each) => each.points.reduce((best, point) =>
      best === null || Math.abs(toX(point[0]) - at) < Math.abs(toX(best[0]) - at) ? point : best, null));
    const found = near.find((point) => point !== null);
    if (!found) return;
    line.setAttribute("x1", toX(found[0]));
    line.setAttribute("x2", toX(found[0]));
    line.setAttribute("visibility", "visible");
    const values = near.map((point, index) => point && `${series[index].name} ${point[1] === null ? "–" : format.y(point[1])}`);
    text.textContent = `${format.x(found[0])}: ${values.filter(Boolean).join(" · ")}`;
  });
  chart.addEventListener("pointerleave", () => {
    line.setAttribute("visibility", "hidden");
    text.textContent = "\u00a0";
  });
}

/**
 * Horizontal bars, one per row: [{ name, parts: [{ name, value }], note }]. All have one scale; options: format, max.
 */
export function barChart(place, rows, options = {}) {
  if (rows.length === 0) {
    place.replaceChildren(element("p", { class: "empty" }, options.empty ?? "No data yet."));
    return;
  }
  const format = options.format ?? number;
  const totals = rows.map((row) => row.parts.reduce((sum, part) => sum + part.value, 0));
  const most = options.max ?? (Math.max(...totals) || 1);
  const names = [...new Set(rows.flatMap((row) => row.parts.map((part) => part.name)))];
  const lines = rows.map((row, index) => {
    let at = 0;
    const bar = svg("svg", { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
      row.parts.map((part) => {
        const size = (100 * part.value) / most;
        at += size;
        return svg("rect", { class: `fill series-${names.indexOf(part.name) % 8}`, x: at - size, width: size, height: 10 },
          svg("title", {}, `${part.name}: ${format(part.value)}`));
      }));
    return element("tr", {}, element("th", { scope: "row" }, row.name), element("td", { class: "bar" }, bar),
      element("td", { class: "number" }, row.note ?? format(totals[index])));
  });
  const caption = options.label ? [element("caption", { class: "unseen" }, options.label)] : [];
  place.replaceChildren(element("table", { class: "bars" }, caption, element("tbody", {}, lines)),
    ...(names.length > 1 ? [legend(names.map((name) => ({ name })))] : []));
}
