// Asks what would have happened, and shows it beside what did.
import { clock, duration, element, embedded, fill, fixed, number, percent, Problem, send, whole } from "/static/horae.js";
import { barChart } from "/static/charts.js";
import { DataTable } from "/static/table.js";

const page = embedded();
const place = (id) => document.getElementById(id);
const SIDES = [["recorded", "As recorded"], ["same", "As it was, simulated"], ["changed", "As it would have been"]];
let asking = null; // aborts the question that is being answered

// ---- The question

/** What is wrong with a field, in one line. */
class Mistake extends Error {
  constructor(text, field) {
    super(text);
    this.field = field;
  }
}

const words = (text) => text.split(/[\s,]+/).filter(Boolean);

function numberOf(input, what) {
  const text = input.value.trim();
  if (!text) return null;
  const value = Number(text);
  if (!Number.isFinite(value) || value <= 0) throw new Mistake(`${what} is ${text} (give a positive number)`, input);
  return value;
}

function sinceOf() {
  const chosen = place("since").value;
  if (chosen === "") return null;
  if (chosen === "begin") return page.log_begins_at;
  if (chosen !== "at") return Math.max(Date.now() / 1000 - Number(chosen), page.log_begins_at);
  const at = new Date(place("at").value).getTime() / 1000;
  if (!Number.isFinite(at)) throw new Mistake("Begin: no time is given (choose a date and a time)", place("at"));
  return at;
}

function policiesOf() {
  const policy = place("policy").value, text = place("options").value.trim();
  if (!policy && text) throw new Mistake("Options are given without a policy (choose the policy that has them)", place("policy"));
  if (!policy) return {};
  let options = {};
  try {
    options = JSON.parse(text || "{}");
  } catch {
    throw new Mistake('Options are not JSON (write for example {"lease_seconds": 600})', place("options"));
  }
  if (options === null || typeof options !== "object" || Array.isArray(options)) {
    throw new Mistake('Options are no JSON object (write for example {"lease_seconds": 600})', place("options"));
  }
  return { [place("pool").value]: { policy, options } };
}

function cellsOf(input) {
  return Object.fromEntries(words(input.value).map((word) => {
    const [, cell, count] = word.match(/^([^=]+)=(\d+)$/) ?? [];
    if (!cell) throw new Mistake(`Cells of ${input.dataset.cells} are ${word} (write A100.node=2)`, input);
    return [cell, Number(count)];
  }));
}

async function question() {
  const asked = { since: sinceOf(), policies: policiesOf(), more_nodes: words(place("more-nodes").value), nodes: words(place("nodes").value) };
  asked.weights = {};
  for (const input of document.querySelectorAll("[data-weight]")) {
    const weight = numberOf(input, `The weight of ${input.dataset.weight}`);
    if (weight !== null) asked.weights[input.dataset.weight] = weight;
  }
  asked.cells = {};
  for (const input of document.querySelectorAll("[data-cells]")) {
    if (input.value.trim()) asked.cells[input.dataset.cells] = cellsOf(input);
  }
  if (place("cadence").value) asked.cadence = place("cadence").value;
  asked.round_seconds = numberOf(place("round-seconds"), "The length of a round");
  const [file] = place("cluster").files;
  if (file) asked.cluster = await file.text();
  return asked;
}

/** A problem of the service, with the names that the form has for fields. */
const NAMES = { since: "Begin", policy: "Policy", nodes: "Nodes", more_nodes: "More nodes", cluster: "Cluster file", cells: "Cells",
  virtualClusters: "Cells", weight: "Weights", weights: "Weights", round_seconds: "Length of a round", seconds: "Time budget" };
const INPUTS = { since: "since", policy: "policy", nodes: "nodes", more_nodes: "more-nodes", cluster: "cluster", round_seconds: "round-seconds", seconds: "seconds" };

function complain(text, input) {
  const problem = place("problem");
  problem.hidden = !text;
  problem.textContent = text;
  for (const each of document.querySelectorAll("[aria-invalid]")) {
    each.removeAttribute("aria-invalid");
    each.removeAttribute("aria-describedby");
  }
  if (!input) return;
  const details = input.closest("details");
  if (details) details.open = true;
  input.setAttribute("aria-invalid", "true");
  input.setAttribute("aria-describedby", "problem");
  input.focus();
}

async function ask(event) {
  event.preventDefault();
  if (asking !== null) return;
  complain("");
  let asked, seconds;
  try {
    seconds = numberOf(place("seconds"), "The time budget") ?? page.seconds;
    if (seconds > page.seconds_max) throw new Mistake(`The time budget is ${seconds} s (give at most ${page.seconds_max} s)`, place("seconds"));
    asked = await question();
  } catch (mistake) {
    if (!(mistake instanceof Mistake)) throw mistake;
    complain(mistake.message, mistake.field);
    return;
  }
  asking = new AbortController();
  const stop = showRunning(seconds);
  try {
    answer(await send("POST", `/v1/whatif?seconds=${seconds}`, asked, asking.signal));
  } catch (error) {
    if (error.name === "AbortError") place("running").textContent = "Cancelled.";
    else if (error instanceof Problem) {
      const { field, detail, remedy } = error.problem;
      const known = field?.split(".")[0];
      const input = INPUTS[known];
      complain([NAMES[known] ? `${NAMES[known]}: ` : field ? `${field}: ` : "", detail, remedy ? ` (${remedy})` : ""].join(""), input && place(input));
    } else complain("The service does not answer (is it running? try again).");
  } finally {
    stop();
    asking = null;
  }
}

/** Shows for how long the question is being answered; returns what ends that. */
function showRunning(seconds) {
  const began = performance.now(), progress = place("progress");
  place("ask").disabled = true;
  place("cancel").hidden = progress.hidden = false;
  progress.max = 2 * seconds;
  place("running").textContent = "Running: the log is read, and two schedules are simulated. You may leave this page; that cancels the question.";
  const timer = setInterval(() => {
    const elapsed = (performance.now() - began) / 1000;
    progress.value = Math.min(elapsed, progress.max);
    progress.textContent = duration(elapsed);
    progress.title = `${duration(elapsed)} of about ${duration(seconds)}, at most twice as long`;
  }, 250);
  return () => {
    clearInterval(timer);
    place("ask").disabled = false;
    place("cancel").hidden = progress.hidden = true;
    if (place("running").textContent.startsWith("Running")) {
      place("running").textContent = `Answered in ${duration((performance.now() - began) / 1000)}.`;
    }
  };
}

// ---- The answer

const time = (found, seconds) => (found.is_dated ? clock(seconds) : duration(seconds));
const signed = (seconds) => `${seconds < 0 ? "" : "+"}${seconds < 0 ? "−" : ""}${duration(Math.abs(seconds))}`;

function answer(found) {
  const shown = place("answer");
  shown.hidden = false;
  const has = found.jobs > 0; // otherwise all figures would be of schedules that cannot be compared
  const tenants = element("div"), rho = element("div"), sooner = element("div"), later = element("div");
  fill(shown,
    element("section", { class: "panel", "aria-labelledby": "answer-title" },
      element("h2", { id: "answer-title" }, found.is_replay ? "The recorded events, decided again" : `With ${found.change.join("; ")}`),
      element("p", {}, summary(found)), notes(found).map((note) => element("p", { class: "notice warn" }, note)), has && figures(found), has && sides(found)),
    has && element("section", { class: "panel", "aria-labelledby": "by-tenant" }, element("h2", { id: "by-tenant" }, "By tenant"), tenants, rho),
    has && element("div", { class: "panels" },
      element("section", { class: "panel", "aria-labelledby": "sooner" }, element("h2", { id: "sooner" }, "Jobs that would have ended sooner"), sooner),
      element("section", { class: "panel", "aria-labelledby": "later" }, element("h2", { id: "later" }, "Jobs that would have ended later"), later)));
  tenantTable(tenants, found);
  rhoBars(rho, found);
  jobTable(sooner, found, found.sooner_jobs, "sooner");
  jobTable(later, found, found.later_jobs, "later");
  shown.focus();
  shown.scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
}

function summary(found) {
  const span = `From ${time(found, found.since)} to ${time(found, found.until)}`;
  if (found.jobs === 0) return `${span} no job has ended in all three schedules: there is nothing to compare.`;
  if (found.is_replay) return `${span}: nothing was changed, and the same decisions give the schedule that is compared with the record, ${whole(found.jobs)} jobs.`;
  return `${span}, ${whole(found.jobs)} jobs are compared: ${whole(found.sooner)} would have ended sooner, ${whole(found.later)} later, ${whole(found.unchanged)} at the same time.`;
}

function notes(found) {
  return [
    found.cut_off_at !== null && `The time budget ended the simulation at ${time(found, found.cut_off_at)}: jobs after that are not compared. Allow more seconds, or begin later.`,
    found.cut_off_at === null && found.never > 0 && `${whole(found.never)} jobs ended, and would not have under this setup.`,
    found.believed > 0 && `${whole(found.believed)} jobs had not ended by themselves: their lengths are drawn from those of others, and they are not compared.`,
  ].filter(Boolean);
}

function figures(found) {
  const shown = [["Sooner", found.sooner], ["Later", found.later], ["Unchanged", found.unchanged], ["Would not have ended", found.never]];
  return element("dl", { class: "figures" }, shown.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, whole(value)))));
}

function sides(found) {
  const rows = [
    ["Mean time to completion", (side) => duration(side.completion_mean_seconds)],
    ["Median time to completion", (side) => duration(side.completion_median_seconds)],
    ["Utilisation of all GPUs", (side) => percent(side.utilisation, 1)],
    ["Preemptions", (side) => whole(side.preemptions)],
  ].filter(([, cell]) => SIDES.some(([key]) => cell(found[key]) !== "–"));
  if (rows.length === 0) return null;
  return sideTable("The three schedules side by side", rows.map(([name, cell]) => [name, SIDES.map(([key]) => cell(found[key]))]));
}

function sideTable(caption, rows) {
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, element("table", {},
    element("caption", { class: "unseen" }, caption),
    element("thead", {}, element("tr", {}, element("td", {}), SIDES.map(([, name]) => element("th", { scope: "col", class: "number" }, name)))),
    element("tbody", {}, rows.map(([name, cells]) => element("tr", {}, element("th", { scope: "row" }, name), cells.map((cell) => element("td", { class: "number" }, cell)))))));
}

const pair = (row, cell) => {
  const [was, would] = [cell(row.same), cell(row.changed)];
  return was === would ? was : `${was} → ${would}`;
};

function guarantee(side) {
  return { kept: "kept", broken: "broken" }[side.guarantee] ?? "none";
}

function tenantTable(where, found) {
  new DataTable(where, [
    { key: "tenant", label: "Tenant", class: "name", value: (row) => row.tenant, cell: (row) => row.tenant },
    { key: "jobs", label: "Jobs", align: "right", value: (row) => row.jobs, cell: (row) => whole(row.jobs) },
    { key: "sooner", label: "Sooner", align: "right", value: (row) => row.sooner, cell: (row) => whole(row.sooner) },
    { key: "later", label: "Later", align: "right", value: (row) => row.later, cell: (row) => whole(row.later) },
    { key: "rho", label: "ρ mean", align: "right", value: (row) => row.changed.rho_mean, cell: (row) => pair(row, (side) => fixed(side.rho_mean)) },
    { key: "worst", label: "ρ worst", align: "right", value: (row) => row.changed.rho_max, cell: (row) => pair(row, (side) => fixed(side.rho_max)) },
    { key: "mean", label: "Mean completion", align: "right", value: (row) => row.changed.completion_mean_seconds, cell: (row) => pair(row, (side) => duration(side.completion_mean_seconds)) },
    { key: "hours", label: "GPU-hours", align: "right", value: (row) => row.changed.gpu_hours, cell: (row) => pair(row, (side) => number(side.gpu_hours)) },
    { key: "preemptions", label: "Preemptions", align: "right", value: (row) => row.changed.preemptions, cell: (row) => pair(row, (side) => whole(side.preemptions)) },
    { key: "waited", label: "Waited for own cells", align: "right", value: (row) => row.changed.waited_for_own_cells_seconds, cell: (row) => pair(row, (side) => duration(side.waited_for_own_cells_seconds)) },
    { key: "guarantee", label: "Guarantee", value: (row) => guarantee(row.changed), cell: (row) => element("span", { class: row.changed.guarantee === "broken" ? "worse" : undefined }, pair(row, guarantee)) },
  ], { caption: "Tenants, as it was and as it would have been", rowKey: (row) => row.tenant, isMain: false, empty: "No tenant has a job that is compared." }).show(found.tenants);
}

function rhoBars(where, found) {
  const known = found.tenants.filter((row) => row.same.rho_mean !== null && row.changed.rho_mean !== null);
  if (known.length === 0) return;
  barChart(where, known.flatMap((row) => [
    { name: `${row.tenant}: as it was`, parts: [{ name: "ρ as it was", value: row.same.rho_mean }], note: fixed(row.same.rho_mean) },
    { name: "would have been", parts: [{ name: "ρ as it would have been", value: row.changed.rho_mean }], note: fixed(row.changed.rho_mean) },
  ]), { label: "Mean ρ by tenant, as it was and as it would have been", format: fixed });
}

function jobTable(where, found, rows, how) {
  new DataTable(where, [
    { key: "job", label: "Job", cell: (row) => element("a", { href: `/jobs/${encodeURIComponent(row.job_id)}` }, row.job_id) },
    { key: "tenant", label: "Tenant", class: "name", value: (row) => row.tenant, cell: (row) => row.tenant },
    { key: "seconds", label: "By", align: "right", value: (row) => Math.abs(row.seconds), cell: (row) => signed(row.seconds) },
    { key: "same", label: "As it was", align: "right", value: (row) => row.same_ends_at, cell: (row) => time(found, row.same_ends_at) },
    { key: "changed", label: "Would have ended", align: "right", value: (row) => row.changed_ends_at, cell: (row) => time(found, row.changed_ends_at) },
  ], { caption: `Jobs that would have ended ${how}, the largest difference first`, rowKey: (row) => row.job_id, isMain: false, empty: `None would have ended ${how}.` }).show(rows);
}

// ---- The form

function showSummary() {
  const policy = page.policies.find((each) => each.name === place("policy").value);
  const options = Object.entries(policy?.options ?? {}).map(([name, value]) => `${name} ${JSON.stringify(value)}`);
  const defaults = options.length ? ` Its options, with their defaults: ${options.join(", ")}.` : "";
  place("summary").textContent = policy ? policy.summary + defaults : "";
}

function showTime() {
  const isAt = place("since").value === "at";
  for (const each of [place("at"), document.querySelector(".for-time")]) each.hidden = !isAt;
}

if (page.may_ask) {
  place("question").addEventListener("submit", ask);
  place("cancel").addEventListener("click", () => asking?.abort());
  window.addEventListener("pagehide", () => asking?.abort());
  place("policy").addEventListener("change", showSummary);
  place("since").addEventListener("change", showTime);
  showSummary();
  showTime();
}
