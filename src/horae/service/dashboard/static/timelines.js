// Charts over time, each with the same as a table.
import { clock, element } from "/static/horae.js";
import { lineChart } from "/static/charts.js";
import { DataTable } from "/static/table.js";

const STEPS = [10, 30, 60, 300, 600, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800];

/** Round times of the reader's time zone between two Unix times, about `count`. */
export function timeTicks(from, to, count = 6) {
  const step = STEPS.find((each) => each >= (to - from) / count) ?? 1_209_600;
  const zone = -60 * new Date(1000 * from).getTimezoneOffset();
  const found = [];
  for (let at = Math.ceil((from + zone) / step) * step - zone; at <= to; at += step) found.push(at);
  return found;
}

/** A time as short as a tick needs it: the time of day, or at midnight the date. */
function tick(unix) {
  const date = new Date(1000 * unix);
  const two = (value) => String(value).padStart(2, "0");
  if (date.getHours() + date.getMinutes() + date.getSeconds() === 0) return `${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${two(date.getHours())}:${two(date.getMinutes())}${date.getSeconds() ? `:${two(date.getSeconds())}` : ""}`;
}

/** From the first to the last time, at least ten minutes. */
function spanOf(series) {
  const times = series.flatMap((each) => each.points.map(([at]) => at)).sort((a, b) => a - b);
  return [Math.min(times[0], times.at(-1) - 600), times.at(-1)];
}

/** A line chart with times as x, as `lineChart`, with a table of the same values below, made when it is opened. */
export function timeline(place, series, options) {
  const known = place.querySelector(":scope > details");
  const chart = place.querySelector(":scope > .plot") ?? element("div", { class: "plot" });
  if (!known) place.replaceChildren(chart);
  const latest = series.map((each) => `${each.name} ${options.y(each.points.at(-1)?.[1])}`);
  lineChart(chart, series, { x: tick, xTicks: timeTicks, xs: spanOf(series), ...options, label: `${options.label}; at the end: ${latest.join(", ") || "no data"}` });
  const details = known ?? details_(options.label);
  details.series = series;
  details.format = options.y;
  details.hidden = series.every((each) => each.points.length === 0);
  if (!known) place.append(details);
  if (details.open) fillTable(details);
}

function details_(label) {
  const made = element("details", { class: "same-as-table" }, element("summary", {}, "The same as a table"), element("div"));
  made.label = label;
  made.addEventListener("toggle", () => made.open && fillTable(made));
  return made;
}

function fillTable(details) {
  const { series, format, label } = details;
  const rows = new Map();
  series.forEach((each, index) => {
    for (const [at, value] of each.points) {
      if (!rows.has(at)) rows.set(at, { id: at, values: [] });
      rows.get(at).values[index] = value;
    }
  });
  const columns = [
    { key: "at", label: "Time", value: (row) => row.id, cell: (row) => clock(row.id, false) },
    ...series.map((each, index) => ({ key: `v${index}`, label: each.name, align: "right", isQuiet: true,
      value: (row) => row.values[index] ?? null, cell: (row) => (row.values[index] === undefined ? "" : format(row.values[index])) })),
  ];
  new DataTable(details.lastElementChild, columns, { caption: label, isMain: false, sort: { key: "at", descending: true } })
    .show([...rows.values()]);
}

/** Calls `refresh` at most once in so many seconds. */
export function seldom(refresh, seconds) {
  let last = performance.now();
  return async () => {
    await new Promise((done) => setTimeout(done, Math.max(0, last + 1000 * seconds - performance.now())));
    last = performance.now();
    await refresh();
  };
}

/** Has a select of the page set a parameter of its address and read the page's data anew. */
export function parameter(select, name, changed) {
  select.addEventListener("change", () => {
    const params = new URLSearchParams(location.search);
    if (select.value) params.set(name, select.value);
    else params.delete(name);
    history.replaceState(null, "", params.size ? `?${params}` : location.pathname);
    changed();
  });
}
