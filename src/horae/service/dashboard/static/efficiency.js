// GPUs held and used, GPU types and their prices, idle GPU-hours.
import { badge, clock, element, embedded, fill, live, number, percent, Problem, read, say, whole } from "/static/horae.js";
import { barChart } from "/static/charts.js";
import { DataTable } from "/static/table.js";
import { parameter, seldom, timeline } from "/static/timelines.js";

const REFRESH_SECONDS = 3;
let page = embedded();
const place = (id) => document.getElementById(id);
const sum = (rows, key) => rows.reduce((total, row) => total + (row[key] ?? 0), 0);
const part = (some, all) => (all > 0 ? some / all : null);

// ---- Types

/** What jobs held of the GPU-hours that they could have had. */
function overWindow(type) {
  const rows = page.hours.filter((row) => row.gpu_type === type);
  return { used: part(sum(rows, "held"), sum(rows, "held") + sum(rows, "idle")), idle: sum(rows, "idle") };
}

const types = new DataTable(place("types"), [
  { key: "gpu_type", label: "GPU type", value: (row) => row.gpu_type, cell: (row) => row.gpu_type },
  { key: "gpus", label: "GPUs", align: "right", value: (row) => row.gpus, cell: (row) => whole(row.gpus) },
  { key: "held", label: "Held now", align: "right", value: (row) => row.held, cell: (row) => whole(row.held) },
  { key: "unusable", label: "Unusable", align: "right", value: (row) => row.unusable, cell: (row) => whole(row.unusable) },
  { key: "now", label: "Utilisation now", align: "right", isQuiet: true, value: (row) => part(row.held, row.gpus - row.unusable), cell: (row) => percent(part(row.held, row.gpus - row.unusable)) },
  { key: "window", label: "In the window", align: "right", isQuiet: true, value: (row) => overWindow(row.gpu_type).used, cell: (row) => percent(overWindow(row.gpu_type).used) },
  { key: "idle", label: "Idle GPU-hours", align: "right", isQuiet: true, value: (row) => overWindow(row.gpu_type).idle, cell: (row) => number(overWindow(row.gpu_type).idle) },
  { key: "running", label: "Running jobs", align: "right", value: (row) => row.running_jobs, cell: (row) => whole(row.running_jobs) },
  { key: "speed", label: "Their steps/s", align: "right", isQuiet: true, value: (row) => row.steps_per_second, cell: (row) => (row.steps_per_second === null ? "not reported" : number(row.steps_per_second)) },
], { caption: "GPU types: utilisation and throughput", rowKey: (row) => row.gpu_type, isMain: false, empty: "There are no GPUs." });

function figures() {
  const held = sum(page.types, "held"), usable = sum(page.types, "gpus") - sum(page.types, "unusable");
  const all = sum(page.hours, "held") + sum(page.hours, "idle");
  const measured = sum(page.tenants, "measured_gpu_hours"), used = sum(page.tenants, "used_gpu_hours");
  const shown = [
    ["GPUs held now", `${whole(held)} of ${whole(usable)}`, percent(part(held, usable))],
    ["Held in the window", percent(part(sum(page.hours, "held"), all)), `${number(sum(page.hours, "held"))} GPU-hours`],
    ["Idle in the window", `${number(sum(page.hours, "idle"))}`, "GPU-hours"],
    ["Used of those held", measured > 0 ? percent(used / measured) : "not known", measured > 0 ? `${number(measured)} GPU-hours measured` : "nothing was measured"],
  ];
  fill("figures", shown.map(([name, value, note]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value, element("small", {}, note)))));
}

// ---- Over time

function hours() {
  const names = [...new Set(page.hours.map((row) => row.gpu_type))].sort();
  const series = names.map((name) => ({ name, points: page.hours.filter((row) => row.gpu_type === name).map((row) => [row.at, row.idle]) }));
  timeline(place("hours"), series, { label: "Idle GPU-hours per hour, by GPU type", y: number, from: 0, legend: true,
    empty: "Nothing was recorded in this window yet: the service notes it once per minute." });
}

// ---- Prices

function prices() {
  const withPrices = page.prices.filter((pool) => pool.objective);
  if (withPrices.length === 0) {
    const policies = [...new Set(page.prices.map((pool) => pool.policy))].join(", ");
    const why = page.prices.length ? `No pool has prices now: its policy (${policies}) solves no program by shares, or has not decided yet.` : "The scheduler did not answer in time; it is asked again.";
    fill("prices", element("p", { class: "empty" }, why));
    return;
  }
  fill("prices", withPrices.map((pool) => {
    const bars = element("div");
    barChart(bars, pool.types.map((type) => ({ name: type.gpu_type, parts: [{ name: "price", value: Math.max(type.price ?? 0, 0) }],
      note: type.price === null ? "not defined" : `${number(type.price)}${type.is_full ? "" : ", not full"}` })), { label: `Prices in pool ${pool.pool}` });
    return element("div", { class: "pool-prices" },
      element("h3", {}, `Pool ${pool.pool}, ${pool.policy}`),
      element("p", { class: "muted small" }, `${pool.objective}: ${number(pool.value, 4)}, at most ${number(pool.bound, 4)} is possible; decided ${clock(pool.decided_at)}.`), bars);
  }));
}

// ---- Used against held

const usedText = (row) => (row.used_gpu_hours === null ? "not measured" : number(row.used_gpu_hours));
const usedPart = (row) => (row.used_gpu_hours === null ? null : part(row.used_gpu_hours, row.measured_gpu_hours));
const held = [
  { key: "gpus", label: "GPUs now", align: "right", value: (row) => row.held_gpus, cell: (row) => whole(row.held_gpus) },
  { key: "held", label: "GPU-hours held", align: "right", isQuiet: true, value: (row) => row.gpu_hours, cell: (row) => number(row.gpu_hours) },
  { key: "used", label: "Used", align: "right", isQuiet: true, value: (row) => row.used_gpu_hours, cell: usedText },
  { key: "part", label: "Part used", align: "right", isQuiet: true, value: usedPart, cell: (row) => percent(usedPart(row)) },
];
const tenants = new DataTable(place("tenants"), [
  { key: "name", label: "Tenant", class: "name", value: (row) => row.name, cell: (row) => row.name },
  held[0], held[1],
  { key: "measured", label: "Of these measured", align: "right", isQuiet: true, value: (row) => row.measured_gpu_hours, cell: (row) => number(row.measured_gpu_hours) },
  held[2], held[3],
], { caption: "GPU-hours held and used by tenant", rowKey: (row) => row.name, isMain: false, empty: "No job has held GPUs in this window." });
const jobs = new DataTable(place("jobs"), [
  { key: "id", label: "Job", value: (row) => row.job_id, cell: (row) => element("a", { href: `/jobs/${encodeURIComponent(row.job_id)}` }, row.job_id) },
  { key: "name", label: "Name", class: "name", value: (row) => row.name, cell: (row) => element("span", { title: row.name }, row.name) },
  { key: "tenant", label: "Tenant", class: "name", value: (row) => row.tenant, cell: (row) => row.tenant },
  { key: "user", label: "User", class: "name", value: (row) => row.user, cell: (row) => row.user },
  { key: "state", label: "State", value: (row) => row.state, cell: (row) => badge(row.state) },
  { key: "type", label: "Type", value: (row) => row.gpu_type, cell: (row) => row.gpu_type || "any" },
  ...held,
  { key: "speed", label: "Steps/s", align: "right", isQuiet: true, value: (row) => row.steps_per_second, cell: (row) => number(row.steps_per_second) },
], { caption: "GPU-hours held and used by job", rowKey: (row) => row.job_id, empty: "No job has held GPUs in this window.", sort: { key: "held", descending: true } })
  .filterBy(place("filter"));

function unmeasured() {
  const place_ = place("unmeasured");
  place_.hidden = page.tenants.length === 0 || sum(page.tenants, "measured_gpu_hours") > 0;
  place_.textContent = "What jobs do with their GPUs is not known here: it is measured by NVML on real GPUs, and emulated GPUs tell nothing.";
}

// ---- Measured speeds

let speedColumns = "";
let speeds = null;

function speedTable() {
  const names = [...new Set(page.speeds.map((row) => row.gpu_type))].sort();
  const rows = new Map();
  for (const row of page.speeds) {
    const key = JSON.stringify([row.tenant, row.model, row.gpus]);
    if (!rows.has(key)) rows.set(key, { key, tenant: row.tenant, model: row.model, gpus: row.gpus, by: {}, reports: 0 });
    rows.get(key).by[row.gpu_type] = row.steps_per_second;
    rows.get(key).reports += row.reports;
  }
  if (speedColumns !== names.join()) speeds = null;
  speedColumns = names.join();
  speeds ??= new DataTable(place("speeds"), [
    { key: "model", label: "Model", class: "name", value: (row) => row.model, cell: (row) => row.model },
    { key: "tenant", label: "Tenant", class: "name", value: (row) => row.tenant, cell: (row) => row.tenant },
    { key: "gpus", label: "GPUs", align: "right", value: (row) => row.gpus, cell: (row) => whole(row.gpus) },
    ...names.map((name) => ({ key: `type ${name}`, label: `${name}, steps/s`, align: "right", value: (row) => row.by[name] ?? null, cell: (row) => number(row.by[name]) })),
    { key: "best", label: "Fastest over slowest", align: "right", value: spread, cell: (row) => (spread(row) === null ? "–" : `${number(spread(row))} times`) },
    { key: "reports", label: "Reports", align: "right", value: (row) => row.reports, cell: (row) => whole(row.reports) },
  ], { caption: "Measured speeds of models by GPU type", rowKey: (row) => row.key, isMain: false,
    empty: "No job has reported its speed yet. Jobs report it with the SDK (`horae_sdk`), and name a model in their file." });
  speeds.update([...rows.values()]);
}

function spread(row) {
  const values = Object.values(row.by).filter((value) => value > 0);
  return values.length > 1 ? Math.max(...values) / Math.min(...values) : null;
}

// ---- Together

function show(isFirst = false) {
  figures();
  for (const [table, rows] of [[types, page.types], [tenants, page.tenants], [jobs, page.jobs]]) table[isFirst ? "show" : "update"](rows);
  place("more-jobs").hidden = page.more_jobs === 0;
  place("more-jobs").textContent = `${whole(page.more_jobs)} more jobs are not listed: they held less.`;
  hours();
  prices();
  unmeasured();
  speedTable();
}

async function renew() {
  try {
    page = await read();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    say(error.message, "bad");
    return;
  }
  show(true);
}

async function refresh() {
  const fresh = await read();
  page = { ...fresh, prices: fresh.prices.length ? fresh.prices : page.prices }; // the scheduler may be busy
  show();
}

parameter(place("window"), "window", renew);
show(true);
live({ refresh: seldom(refresh, REFRESH_SECONDS) });
