// One job: everything that is known about it, live while it lives.
import {
  badge, clock, duration, element, embedded, fill, fixed, live, moment, number, percent, read, say, send, whole,
} from "/static/horae.js";
import { lineChart } from "/static/charts.js";
import { EtaBlock } from "/static/job_eta.js";
import { endOf, timeline, timeTicks } from "/static/job_timeline.js";
import { Output } from "/static/job_output.js";
import { DataTable } from "/static/table.js";

const ENDED = new Set(["finished", "failed", "cancelled", "stopped", "refused"]);
const PULSE_MS = 3000; // progress and output are no events of the log
const place = (id) => document.getElementById(id);
let page = embedded();
const { id } = page.job;
const isOver = () => ENDED.has(page.job.state);
const url = `/v1/jobs/${encodeURIComponent(id)}`;

// ---- Tables

const leases = new DataTable(place("leases"), [
  { key: "epoch", label: "Lease", align: "right", value: (row) => row.epoch, cell: (row) =>
    element("span", { title: `epoch ${row.epoch}` }, whole(row.number)) },
  { key: "granted", label: "Granted", value: (row) => row.granted_at, cell: (row) => moment(row.granted_at) },
  { key: "ended", label: "Ended", value: (row) => row.ended_at, cell: (row) => (row.ended_at ? moment(row.ended_at) : "runs") },
  { key: "for", label: "Ran", align: "right", isQuiet: true, cell: (row) =>
    (row.started_at ? duration((row.ended_at ?? Date.now() / 1000) - row.started_at) : "never started") },
  { key: "gpus", label: "GPUs", align: "right", cell: (row) => whole(row.gpus) },
  { key: "type", label: "Type", cell: (row) => row.gpu_type },
  { key: "kind", label: "In own cells", cell: (row) => (row.guaranteed ? "yes, guaranteed" : "no") },
  { key: "where", label: `Where`, class: "wide", cell: (row) => `one ${row.level}: ${row.places.join(" ")}` },
  { key: "steps", label: "Saved steps", align: "right", cell: (row) => whole(row.steps) },
  { key: "why", label: "Why it left", class: "wide", cell: (row) => (row.ended_at ? endOf(row, row.next) : "") },
], { caption: "Leases, the latest first", rowKey: (row) => row.epoch, sort: { key: "epoch", descending: true },
  empty: "It never got GPUs so far." });

const speeds = new DataTable(place("speeds"), [
  { key: "type", label: "GPU type", cell: (row) => row.gpu_type },
  { key: "gpus", label: "GPUs", align: "right", cell: (row) => whole(row.gpus) },
  { key: "level", label: "Within one", cell: (row) => row.level },
  { key: "believed", label: "Believed", align: "right", cell: (row) => number(row.believed) },
  { key: "measured", label: "Measured by its model", align: "right", cell: (row) =>
    (row.measured === null ? "not yet" : `${number(row.measured)} (${clock(row.measured_at)})`) },
  { key: "now", label: "Reported by this job", align: "right", isQuiet: true, cell: (row) =>
    (row.is_held ? number(page.job.steps_per_second) : "") },
], { caption: "Speeds by shape", rowKey: (row) => `${row.gpu_type} ${row.gpus} ${row.level}`, isMain: false,
  empty: "Nothing is known." });

const happened = new DataTable(place("events"), [
  { key: "at", label: "Time", cell: (row) => moment(row.at) },
  { key: "kind", label: "Event", cell: (row) => row.kind },
  { key: "text", label: "What happened", class: "wide", cell: (row) => row.text },
], { caption: "Events of this job, the latest first", rowKey: (row) => row.seq, isMain: false,
  empty: "The log no longer has its events; its leases are above." });

// ---- What is shown

function figures() {
  const { job, progress } = page;
  const share = job.steps_total ? job.steps / job.steps_total : null;
  const held = job.held_gpus ? `${job.held_gpus} of ${job.gpus}` : `${job.gpus}`;
  const shown = [
    ["GPUs", held, job.held_gpus ? `${job.gpu_type}, ${job.guaranteed ? "guaranteed" : "not guaranteed"}` : `asked for, ${job.gpu_type || "any type"}`],
    ["Waited", duration(job.wait_seconds), "until its first start"],
    ["Ran", duration(job.run_seconds), `${number(job.gpu_seconds / 3600)} GPU-hours`],
    ["Progress", share === null ? `${whole(job.steps)} steps` : percent(share), share === null ? "of an unknown number" : `${whole(job.steps)} of ${whole(job.steps_total)} steps`],
    ["Speed", number(job.steps_per_second), "steps per second, reported"],
    ["Loss", number(progress.loss), progress.at ? `reported ${clock(progress.at)}` : "no report"],
    ["Preempted", whole(job.preemptions), `${whole(job.failures)} failures`],
    ["ρ", fixed(job.rho), isOver() ? "time taken over fair time" : "of its app, so far"],
  ];
  fill("figures", shown.map(([name, value, note]) => element("div", {}, element("dt", {}, name),
    element("dd", {}, value, " ", element("small", {}, note)))));
  fill("state", badge(job.state));
  document.body.dataset.state = job.state;
}

let eta = null;

function why() {
  const { job, why: told, leases: all } = page;
  if (isOver()) {
    place("why-title").textContent = "How it ended";
    const last = all.at(-1);
    fill("why", element("p", { id: "reason" }, element("strong", {}, `${job.state} `), "at ", moment(job.ended_at)),
      element("p", {}, job.reason || (last && last.ending !== job.state ? endOf(last) : "")));
    eta = null;
    return;
  }
  if (!place("why-text")) {
    const asked = element("div", { id: "eta" });
    fill("why", element("p", { id: "reason" }), element("pre", { id: "why-text" }), asked);
    eta = new EtaBlock(asked, id);
  }
  place("reason").textContent = told?.reason || job.reason || (job.held_gpus ? `Runs on ${job.places.join(" ")}.` : "");
  place("why-text").textContent = told?.text ?? "";
}

function request() {
  const { job, request: asked } = page;
  const rows = [
    ["Tenant, user", `${job.tenant}, ${job.user}`],
    ["App", page.has_app ? job.app : "of its own"],
    ["Submitted", moment(job.submitted_at)],
    ["Command", element("code", {}, asked.run)],
    ["Folder", asked.workdir && element("code", {}, asked.workdir)],
    ["Model", job.model],
    ["Priority", asked.priority],
    ["When preempted", job.resumable ? "resumes from its checkpoint" : "has not shown that it resumes"],
    ["Grace", duration(asked.grace)],
    ["Retries", asked.retries ? whole(asked.retries) : ""],
    ["After", asked.after.join(", ")],
    ["Deadline", asked.deadline],
    ["Longest", asked.max_duration && duration(asked.max_duration)],
  ];
  fill("request", rows.filter(([, value]) => value).flatMap(([label, value]) => [element("dt", {}, label), element("dd", {}, value)]));
}

function charts() {
  const { points } = page.progress;
  const byTime = [...points].sort((a, b) => a.at - b.at);
  const steps = byTime.map((point) => [point.at, point.steps]);
  const ends = page.job.steps_total ? [{ y: page.job.steps_total, name: "done" }] : [];
  lineChart(place("progress"), [{ name: "steps", points: steps }], { label: "Steps over time", x: clock, y: whole, from: 0, xTicks: timeTicks,
    lines: ends, empty: "It has reported no progress. The SDK does it by itself." });
  const losses = points.filter((point) => point.loss !== null).map((point) => [point.steps, point.loss]);
  lineChart(place("loss"), [{ name: "loss", points: losses }], { label: "Loss over steps", x: whole, y: number,
    empty: "It has reported no loss." });
}

function controls() {
  const actions = place("actions");
  if (!actions) return;
  actions.hidden = isOver();
  const isHeld = page.job.state === "suspended";
  place("hold").hidden = isHeld;
  place("release").hidden = !isHeld;
  place("stop").disabled = place("hold").disabled = page.job.state === "cancelling";
}

/** Leases with their number, the latest first; epochs are too long to be read. */
const numbered = () =>
  page.leases.map((lease, index, all) => ({ ...lease, number: page.leases_before + index + 1, next: all[index + 1] })).reverse();

let drawn = "";

function show() {
  figures();
  why();
  controls();
  timeline(place("timeline"), page.job, page.leases, page.leases_before);
  leases.update(numbered());
  speeds.update(page.speeds);
  const last = page.progress.points.at(-1);
  const now = `${page.progress.points.length} ${last?.at} ${last?.steps}`;
  if (now !== drawn) charts();
  drawn = now;
}

// ---- Changes

async function change(method, path, done) {
  try {
    await send(method, path);
    say(done);
    await refresh();
  } catch (error) {
    say(error.message, "bad");
  }
}

if (place("actions")) {
  place("hold").addEventListener("click", () => change("POST", `${url}/hold`, "It is asked to save its work and leave."));
  place("release").addEventListener("click", () => change("POST", `${url}/release`, "It waits for GPUs again."));
  place("stop").addEventListener("click", () => {
    place("confirm").returnValue = "";
    place("confirm").showModal();
  });
  place("confirm").addEventListener("close", () => {
    const choice = place("confirm").returnValue;
    if (choice === "stop") change("DELETE", url, "It is asked to leave.");
    if (choice === "kill") change("DELETE", `${url}?grace=0`, "It is killed.");
  });
}

// ---- Parts that are read by themselves

const KINDS = ["JobSubmitted", "JobCancelled", "JobHeld", "JobReleased", "JobStarted", "JobPhase", "JobEnded", "JobResumable", "LeaseAdopted"];
const EVENTS_SHOWN = 1000, EVENTS_READ = 200;
let events = [];

function addEvents(fresh) {
  const seen = new Set(events.map((event) => event.seq));
  events = [...events, ...fresh.filter((event) => KINDS.includes(event.kind) && !seen.has(event.seq))];
  events.sort((a, b) => b.seq - a.seq);
  events = events.slice(0, EVENTS_SHOWN);
  happened.show(events);
}

async function readEvents() {
  const kinds = KINDS.map((kind) => `kind=${kind}`).join("&");
  let since = 0;
  for (;;) {
    const found = await read(`/v1/events?job=${encodeURIComponent(id)}&${kinds}&limit=${EVENTS_READ}&since=${since}`);
    addEvents(found.items);
    if (found.next <= since || found.next >= page.seq) break;
    since = found.next;
  }
}

async function readTrials() {
  const found = await read(`/v1/trials?app=${encodeURIComponent(page.job.app)}`);
  const names = [...new Set(found.flatMap((trial) => Object.keys(trial.parameters)))].slice(0, 8);
  const table = new DataTable(place("trials"), [
    { key: "job", label: "Job", value: (row) => Number(row.job_id.replace("_", ".")), cell: (row) => (row.job_id === id
      ? element("strong", {}, `${id} (this)`) : element("a", { href: `/jobs/${encodeURIComponent(row.job_id)}` }, row.job_id)) },
    { key: "state", label: "State", value: (row) => row.state, cell: (row) => badge(row.state) },
    ...names.map((name) => ({ key: `p ${name}`, label: name, align: "right", value: (row) => row.parameters[name],
      cell: (row) => String(row.parameters[name] ?? "") })),
    { key: "steps", label: "Steps", align: "right", value: (row) => row.steps, cell: (row) => whole(row.steps) },
    { key: "loss", label: "Loss", align: "right", value: (row) => row.loss, cell: (row) => number(row.loss) },
    { key: "rung", label: "Promoted", align: "right", value: (row) => row.rung, cell: (row) => (row.rung === null ? "" : whole(row.rung)) },
    { key: "hours", label: "GPU-hours", align: "right", value: (row) => row.gpu_hours, cell: (row) => number(row.gpu_hours) },
    { key: "reason", label: "Why", class: "wide", cell: (row) => row.reason },
  ], { caption: "Jobs of the same app", rowKey: (row) => row.job_id, sort: { key: "loss", descending: false }, isMain: false });
  table.show(found);
}

const output = new Output(id, place("output"), place("output-state"), place("follow"));
const quietly = (work) => work().catch((error) => console.warn(error.message));

// ---- Life

async function refresh() {
  const before = page.job.state;
  page = await read();
  show();
  if (before !== page.job.state && eta && !isOver() && ["starting", "pending"].includes(page.job.state)) eta.ask();
}

leases.show(numbered());
speeds.show(page.speeds);
request();
show();
quietly(() => output.read());
quietly(readEvents);
if (page.has_app) quietly(readTrials);
eta?.ask();
document.addEventListener("horae-theme", () => show());
let shownWidth = place("timeline").clientWidth;
new ResizeObserver(() => {
  if (place("timeline").clientWidth === shownWidth) return;
  shownWidth = place("timeline").clientWidth;
  drawn = "";
  show();
}).observe(place("timeline"));
const { update } = live({ refresh, job: id, onEvents: addEvents });
let hasMore = true; // after the end, the rest of the output is read
setInterval(async () => {
  if (document.hidden || (isOver() && !hasMore)) return;
  const wasOver = isOver();
  if (!wasOver) update();
  hasMore = await output.read().catch(() => true) || !wasOver;
}, PULSE_MS);
