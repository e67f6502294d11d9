// Jobs in pages. The service sorts and filters; while a page is open its rows change in place and keep their order.
import { badge, clock, duration, element, embedded, fill, fixed, live, number, Problem, read, whole } from "/static/horae.js";
import { askEta, etaText, FAR } from "/static/job_eta.js";
import { DataTable } from "/static/table.js";

let page = embedded();
let cursors = [null]; // of the pages up to this one
let etas = new Map(); // by job: text, asked for by the reader
let arrived = 0; // jobs that were submitted since this list was read
const place = (id) => document.getElementById(id);
const params = new URLSearchParams(location.search);
place("filter").value = params.get("text") ?? "";
const sorted = { key: page.sort.replace("-", ""), descending: page.sort.startsWith("-") };

const isWaiting = (job) => ["submitted", "waiting", "pending", "holding"].includes(job.state);
const isLive = (job) => isWaiting(job) || ["starting", "running", "stopping", "cancelling", "suspended"].includes(job.state);

const columns = [
  { key: "number", label: "Job", value: () => 0, cell: (job) =>
    element("a", { href: `/jobs/${encodeURIComponent(job.id)}` }, job.id) },
  { key: "name", label: "Name", value: () => 0, class: "name", cell: (job) => element("span", { title: job.name }, job.name) },
  { key: "tenant", label: "Tenant", value: () => 0, class: "name", cell: (job) => job.tenant },
  { key: "user", label: "User", value: () => 0, class: "name", cell: (job) => job.user },
  { key: "state", label: "State", value: () => 0, cell: (job) => badge(job.state) },
  { key: "gpus", label: "GPUs", align: "right", value: () => 0, cell: (job) =>
    job.held_gpus ? `${job.held_gpus} of ${job.gpus}` : `${job.gpus}` },
  { key: "type", label: "Type", cell: (job) => job.gpu_type || "any" },
  { key: "position", label: "Place", align: "right", cell: (job) => (job.position ? whole(job.position) : "") },
  { key: "rho", label: "ρ", align: "right", value: () => 0, isQuiet: true, cell: (job) => fixed(job.rho) },
  { key: "wait", label: "Waited", align: "right", isQuiet: true, cell: (job) => duration(job.wait_seconds) },
  { key: "run", label: "Ran", align: "right", isQuiet: true, cell: (job) => (job.run_seconds ? duration(job.run_seconds) : "") },
  { key: "eta", label: "ETA", class: "eta", cell: etaCell },
  { key: "reason", label: "Why", class: "wide", cell: whyText },
];

function whyText(job) {
  if (job.reason) return job.reason;
  if (job.steps_total && isLive(job)) return `${number((100 * job.steps) / job.steps_total)}% of ${whole(job.steps_total)} steps`;
  return job.ended_at ? `ended ${clock(job.ended_at)}` : "";
}

function etaCell(job) {
  if (!isLive(job) || job.state === "suspended") return "";
  const known = etas.get(job.id);
  if (known) return element("span", { class: "eta", title: known.long }, known.text);
  return element("button", { type: "button", class: "quiet small", "data-eta": job.id, "aria-label": `When does job ${job.id} start and end?` }, "ask");
}

const table = new DataTable(place("table"), columns, {
  caption: "Jobs", sort: sorted, empty: "No jobs here. Submit one with `horae submit`.", opens: true,
  onSort: ({ key, descending }) => go({ sort: `${descending ? "-" : ""}${key}` }),
});

const ETAS_AT_ONCE = 10; // each costs up to two seconds of a processor

async function showEta(id) {
  const button = place("table").querySelector(`[data-eta="${CSS.escape(id)}"]`);
  if (button) {
    button.disabled = true;
    button.textContent = "…";
  }
  try {
    const found = await askEta(id);
    etas.set(id, { text: shortText(found), long: `${etaText(found)}; ${found.draws} futures` });
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    etas.set(id, { text: "no answer", long: error.message });
  }
  table.update(page.jobs.map((job) => ({ ...job })));
}

const shortText = (eta) => {
  const when = (moment) => (moment.median === null ? FAR : clock(moment.median, false));
  return eta.starts ? `starts ${when(eta.starts)}, ends ${when(eta.ends)}` : `ends ${when(eta.ends)}`;
};

place("table").addEventListener("click", ({ target }) => {
  if (target.dataset.eta) showEta(target.dataset.eta);
});

place("etas").addEventListener("click", async () => {
  const isSeen = (button) => {
    const { top, bottom } = button.getBoundingClientRect();
    return top >= 0 && bottom <= innerHeight;
  };
  const seen = [...place("table").querySelectorAll("[data-eta]")].filter(isSeen).slice(0, ETAS_AT_ONCE);
  place("etas").disabled = true;
  for (const id of seen.map((button) => button.dataset.eta)) await showEta(id); // one after the other
  place("etas").disabled = false;
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "e" || event.ctrlKey || event.metaKey || event.altKey) return;
  const line = event.target.closest?.("#table tbody tr");
  const button = line?.querySelector("[data-eta]");
  if (button && !button.disabled) showEta(button.dataset.eta);
});

// ---- Reading

/** Reads a list anew, with other parameters; the address keeps them. */
async function go(changes, cursor = null) {
  for (const [name, value] of Object.entries(changes)) {
    if (value) params.set(name, value);
    else params.delete(name);
  }
  history.replaceState(null, "", params.size ? `?${params}` : location.pathname);
  const query = new URLSearchParams(params);
  if (cursor) query.set("cursor", cursor);
  else cursors = [null];
  page = await read(`/data/queue?${query}`);
  arrived = 0;
  show();
}

function show() {
  table.show(page.jobs);
  figures();
  news();
  const before = (cursors.length - 1) * page.rows;
  place("range").textContent = page.jobs.length ? `${whole(before + 1)}–${whole(before + page.jobs.length)}` : "";
  place("pager").hidden = cursors.length === 1 && page.next === null;
  place("previous").disabled = cursors.length === 1;
  place("next").disabled = page.next === null;
}

function figures() {
  const sum = (...states) => states.reduce((total, state) => total + (page.counts[state] ?? 0), 0);
  const shown = [
    ["Running", sum("running", "starting", "stopping", "cancelling")],
    ["Waiting for GPUs", sum("submitted", "pending", "holding")],
    ["Waiting for other jobs", sum("waiting")],
    ["Held", sum("suspended")],
    ["Finished", sum("finished")],
    ["Failed", sum("failed", "refused")],
    ["Cancelled", sum("cancelled", "stopped")],
  ];
  fill("figures", shown.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, whole(value)))));
}

function news() {
  const fresh = place("fresh");
  fresh.hidden = arrived === 0;
  const text = arrived === 1 ? "1 job was submitted since this list was read. " : `${whole(arrived)} jobs were submitted since this list was read. `;
  const button = element("button", { type: "button", on: { click: () => go({}) } }, "Show them");
  fill(fresh, text, button);
}

async function refresh() {
  if (page.jobs.length === 0) return go({});
  const ids = page.jobs.map((job) => job.id).join(",");
  const fresh = await read(`/data/queue?ids=${encodeURIComponent(ids)}`);
  const byId = new Map(fresh.jobs.map((job) => [job.id, job]));
  page.jobs = page.jobs.map((job) => byId.get(job.id) ?? job);
  page.counts = fresh.counts;
  table.update(page.jobs);
  figures();
}

place("controls").addEventListener("submit", (event) => event.preventDefault());
place("show").addEventListener("change", () => go({ show: place("show").value }));
let typing;
place("filter").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => go({ text: place("filter").value.trim() }), 200);
});
place("next").addEventListener("click", () => {
  cursors.push(page.next);
  go({}, page.next);
});
place("previous").addEventListener("click", () => {
  cursors.pop();
  go({}, cursors.at(-1));
});

show();
live({
  refresh,
  onEvents: (events) => {
    arrived += events.filter((event) => event.kind === "JobSubmitted" &&
      !page.jobs.some((job) => job.id === event.job_id)).length;
    news();
  },
});
