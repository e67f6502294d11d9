// Rho of tenants and apps, GPU-hours against weights, auctions.
import { clock, duration, element, embedded, fill, fixed, live, moment, number, percent, Problem, read, say, whole } from "/static/horae.js";
import { barChart, lineChart, ticks } from "/static/charts.js";
import { DataTable } from "/static/table.js";
import { parameter, seldom, timeline } from "/static/timelines.js";

const REFRESH_SECONDS = 3;
let page = embedded();
let chosen = null; // the number of the auction that is shown
const place = (id) => document.getElementById(id);

// ---- Tables

const gpuHours = { key: "gpu_hours", label: "GPU-hours", align: "right", isQuiet: true, value: (row) => row.gpu_hours, cell: (row) => number(row.gpu_hours) };
const rhos = [
  { key: "rho_mean", label: "ρ mean", align: "right", isQuiet: true, value: (row) => row.rho_mean, cell: (row) => fixed(row.rho_mean) },
  { key: "rho_max", label: "ρ worst", align: "right", isQuiet: true, value: (row) => row.rho_max, cell: (row) => rhoCell(row.rho_max) },
];
const counts = [
  { key: "jobs", label: "Jobs", align: "right", value: (row) => row.jobs, cell: (row) => whole(row.jobs) },
  { key: "running", label: "Running", align: "right", value: (row) => row.running, cell: (row) => whole(row.running) },
  { key: "finished", label: "Finished", align: "right", value: (row) => row.finished, cell: (row) => whole(row.finished) },
];
const waited = { key: "waited", label: "Waited for own cells", align: "right", isQuiet: true,
  value: (row) => row.waited_for_own_cells_seconds,
  cell: (row) => (row.waited_for_own_cells_seconds === null ? "no cells" : duration(row.waited_for_own_cells_seconds)) };

/** Worse than its share is said in words, too, not by colour alone. */
function rhoCell(rho) {
  if (rho === null) return fixed(rho);
  return rho > 1.005 ? element("span", { class: "worse", title: "worse than on its fair share alone" }, `${fixed(rho)} ▲`) : fixed(rho);
}

const tenants = new DataTable(place("tenants"), [
  { key: "name", label: "Tenant", class: "name", value: (row) => row.name, cell: (row) => row.name },
  ...rhos, ...counts, gpuHours,
  { key: "share", label: "Part", align: "right", isQuiet: true, value: (row) => row.share, cell: (row) => percent(row.share, 1) },
  { key: "weight", label: "By weight", align: "right", isQuiet: true, value: (row) => row.weight_share, cell: (row) => percent(row.weight_share, 1) },
  { key: "guaranteed", label: "Guaranteed", align: "right", isQuiet: true, value: (row) => row.guaranteed_gpu_hours, cell: (row) => number(row.guaranteed_gpu_hours) },
  waited,
], { caption: "Tenants: how they are treated", rowKey: (row) => row.name, isMain: false, empty: "No tenant has had a job in this window.", sort: { key: "name", descending: false } });

const apps = new DataTable(place("apps"), [
  { key: "name", label: "App", class: "name", value: (row) => row.name, cell: (row) => element("a", { href: `/queue?show=all&text=${encodeURIComponent(row.name)}` }, row.name) },
  { key: "tenant", label: "Tenant", class: "name", value: (row) => row.tenant, cell: (row) => row.tenant },
  ...rhos, ...counts, gpuHours,
], { caption: "Apps: how they are treated", rowKey: (row) => `${row.tenant} ${row.name}`, empty: "No app has had a job in this window.", sort: { key: "rho_max", descending: true } })
  .filterBy(place("filter"));

// ---- Over time

function lines(value, names) {
  return names.map((name) => ({
    name: name || `${page.tenant}, mean`,
    dashed: page.tenant !== null && name === "",
    points: page.points.filter((point) => (page.tenant === null ? point.tenant : point.app) === name).map((point) => [point.at, value(point)]),
  }));
}

function charts() {
  const key = page.tenant === null ? (point) => point.tenant : (point) => point.app;
  const names = [...new Set(page.points.map(key))].sort();
  const what = page.tenant === null ? "tenants" : `the oldest live apps of ${page.tenant}`;
  const empty = "Nothing was recorded in this window yet: the service notes it once per minute, while jobs are there.";
  timeline(place("rho"), lines((point) => point.rho_mean, names),
    { label: `Mean ρ of ${what} over time`, y: fixed, from: 0, lines: [{ y: 1, name: "its fair share" }], empty, legend: true });
  const steps = lines((point) => point.gpus, names).map((each) => ({ ...each, steps: true }));
  timeline(place("gpus"), steps, { label: `GPUs held by ${what} over time`, y: number, from: 0, empty, legend: true });
}

function bars() {
  barChart(place("share"), page.tenants.flatMap((row) => [
    { name: `${row.name}: used`, parts: [{ name: "used", value: row.share }], note: percent(row.share, 1) },
    { name: "by weight", parts: [{ name: "by weight", value: row.weight_share }], note: percent(row.weight_share, 1) },
  ]), { label: "Parts of all GPU-hours by tenant, used and by weight", format: (value) => percent(value, 1), empty: "No GPU-hours yet." });
  const own = page.tenants.filter((row) => row.waited_for_own_cells_seconds !== null);
  barChart(place("own"), own.map((row) => ({ name: row.name, parts: [{ name: "waited", value: row.waited_for_own_cells_seconds }] })),
    { label: "Time that jobs waited for cells of their own tenant", format: duration, empty: "No tenant here reserves cells." });
}

// ---- Auctions

const auctions = new DataTable(place("auctions"), [
  { key: "auction", label: "Auction", value: (each) => each.auction, cell: (each) =>
    element("button", { type: "button", class: "quiet small", "data-auction": each.auction, "aria-label": `Show auction ${each.auction}` }, `${each.auction}`) },
  { key: "called_at", label: "Called", value: (each) => each.called_at, cell: (each) => moment(each.called_at) },
  { key: "pool", label: "Pool", value: (each) => each.pool, cell: (each) => each.pool },
  { key: "apps", label: "Apps", align: "right", value: (each) => each.parts.length, cell: (each) => whole(each.parts.length) },
  { key: "bids", label: "Own bids", align: "right", value: bidCount, cell: (each) => whole(bidCount(each)) },
  { key: "won", label: "GPUs won", align: "right", value: wonCount, cell: (each) => (each.closed_at === null ? "open" : whole(wonCount(each))) },
  { key: "gain", label: "Best gain", align: "right", value: bestGain, cell: (each) => gainText(bestGain(each)) },
  { key: "payment", label: "Highest payment", align: "right", value: highestPayment, cell: (each) => percent(highestPayment(each), 1) },
], { caption: "Auctions, the latest first", rowKey: (each) => each.auction, isMain: false, sort: { key: "auction", descending: true } });

function bidCount(each) { return each.parts.filter((part) => part.bid !== null).length; }
function wonCount(each) { return each.parts.reduce((sum, part) => sum + part.won_gpus, 0); }
function bestGain(each) { return each.parts.reduce((best, part) => (part.won_gpus && part.gain > (best ?? 0) ? part.gain : best), null); }
function highestPayment(each) { return Math.max(0, ...each.parts.map((part) => part.payment)); }
function gainText(gain) { return gain === null ? "–" : `${number(gain)} times`; }

place("auctions").addEventListener("click", ({ target }) => {
  if (!target.dataset.auction) return;
  chosen = Number(target.dataset.auction);
  auction();
});

/** One auction: what each app was offered and bid, and what it won and paid. */
function auction() {
  const found = page.auctions.find((each) => each.auction === chosen);
  if (!found) return;
  const shown = JSON.stringify(found);
  if (place("auction").dataset.shown === shown) return;
  place("auction").dataset.shown = shown;
  const chart = element("div"), table = element("div");
  fill("auction", element("h3", {}, `Auction ${found.auction} of pool ${found.pool}, ${clock(found.called_at)}`), chart, table);
  lineChart(chart, found.parts.map((part) => ({
    name: part.app,
    points: (part.bid ?? part.offer).gpus.map((gpus, index) => [gpus, (part.bid ?? part.offer).rho[index]]),
    dashed: part.bid === null,
  })), { label: `Bids of auction ${found.auction}: ρ by number of GPUs won; dashed: estimated by the scheduler`, x: whole, y: fixed, from: 0, legend: true,
    xTicks: (low, high, count) => ticks(low, high, count).filter(Number.isInteger) });
  new DataTable(table, [
    { key: "app", label: "App", class: "name", value: (part) => part.app, cell: (part) => part.app },
    { key: "tenant", label: "Tenant", class: "name", value: (part) => part.tenant, cell: (part) => part.tenant },
    { key: "offer", label: "Offered", cell: (part) => `up to ${whole(Math.max(0, ...part.offer.gpus))} GPUs` },
    { key: "bid", label: "Bid", class: "wide", cell: (part) => bidText(part, found) },
    { key: "won", label: "Won GPUs", align: "right", value: (part) => part.won_gpus, cell: (part) => whole(part.won_gpus) },
    { key: "before", label: "ρ without", align: "right", value: (part) => part.rho_before, cell: (part) => fixed(part.rho_before) },
    { key: "after", label: "ρ with", align: "right", value: (part) => part.rho_after, cell: (part) => fixed(part.rho_after) },
    { key: "gain", label: "Gain", align: "right", value: (part) => part.gain, cell: (part) => gainText(part.won_gpus ? part.gain : null) },
    { key: "lease", label: "Lease", align: "right", value: (part) => part.lease_seconds, cell: (part) => (part.lease_seconds ? duration(part.lease_seconds) : "–") },
    { key: "payment", label: "Paid", align: "right", value: (part) => part.payment, cell: (part) => percent(part.payment, 1) },
  ], { caption: `Apps in auction ${found.auction}`, rowKey: (part) => part.app, isMain: false }).show(found.parts);
}

function bidText(part, found) {
  if (part.bid !== null) return part.note ? `its own; ${part.note}` : "its own";
  if (found.closed_at === null) return "awaited";
  return part.note || "none came in time: the estimate counts";
}

function auctionsEmpty() {
  const text = place("no-auctions");
  text.hidden = page.auctions.length > 0;
  if (text.hidden) return;
  text.textContent = page.bidding_pools.length
    ? `No agent of an app was called for bids yet. In pool ${page.bidding_pools.join(", ")} the scheduler bids for apps without an agent by its own estimates, which are in the reasons of jobs; those with \`bids: true\` in their job file are listed here.`
    : "No pool shares its GPUs by auction (policy themis).";
}

// ---- Together

function show(isFirst = false) {
  tenants[isFirst ? "show" : "update"](page.tenants);
  apps[isFirst ? "show" : "update"](page.apps);
  auctions.show(page.auctions);
  auctions.nothing.hidden = true; // what stands above says more
  place("more-apps").hidden = page.more_apps === 0;
  place("more-apps").textContent = `${whole(page.more_apps)} more apps are not listed: they are better off.`;
  charts();
  bars();
  auctionsEmpty();
  if (chosen === null && page.auctions.length) chosen = (page.auctions.find(wonCount) ?? page.auctions[0]).auction;
  auction();
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

/** Without points that are there: the moment asked for is rounded, so that the last ones may come again. */
function unknown(points) {
  const name = (point) => JSON.stringify([point.tenant, point.app]);
  const last = new Map(page.points.map((point) => [name(point), point.at]));
  return points.filter((point) => !(point.at < last.get(name(point)) + 1));
}

async function refresh() {
  const asked = page;
  const params = new URLSearchParams(location.search);
  params.set("after", String(page.points.at(-1)?.at ?? 0));
  const fresh = await read(`/data/fairness?${params}`);
  if (asked !== page) return; // another window was chosen meanwhile
  page = { ...fresh, points: [...page.points, ...unknown(fresh.points)] };
  show();
}

parameter(place("window"), "window", renew);
parameter(place("tenant"), "tenant", renew);
show(true);
live({ refresh: seldom(refresh, REFRESH_SECONDS) });
