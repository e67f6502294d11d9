// The leases of a job over time: one lane per GPU type, and one for the times in which it waited.
import { clock, duration, element, fill } from "/static/horae.js";
import { legend, ticks } from "/static/charts.js";

const LEFT = 96, RIGHT = 16, LANE = 30, TOP = 8, AXIS = 26, BAR = 18;
const svg = (tag, attributes, ...children) => element(`svg:${tag}`, attributes, ...children);

/** Why a lease ended, in words; without a reason, where the job went. */
export function endOf(lease, next) {
  if (lease.ended_at === null) return "runs";
  if (lease.reason) return `${lease.ending}: ${lease.reason}`;
  if (lease.ending !== "stopped" || !next) return lease.ending;
  return `stopped; next on ${next.gpus} x ${next.gpu_type}, ${next.guaranteed ? "in" : "not in"} cells of its tenant`;
}

/** Times that read well, at most `count` of them. */
export function timeTicks(from, to, count) {
  const units = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400];
  const step = units.find((each) => (to - from) / each <= count);
  if (!step) return ticks(from, to, count);
  const offset = new Date(1000 * from).getTimezoneOffset() * 60;
  const found = [];
  for (let at = Math.ceil((from - offset) / step) * step + offset; at <= to; at += step) found.push(at);
  return found;
}

/** The times without GPUs between the leases: [from, to]. */
function waits(job, leases, now) {
  const found = [];
  let free = job.submitted_at;
  for (const lease of leases) {
    if (lease.granted_at > free) found.push([free, lease.granted_at]);
    free = Math.max(free, lease.ended_at ?? now);
  }
  const end = job.ended_at ?? now;
  if (end > free) found.push([free, end]);
  return found;
}

export function timeline(place, job, leases, before) {
  const now = Date.now() / 1000;
  const from = before ? leases[0].granted_at : job.submitted_at;
  const to = Math.max(job.ended_at ?? now, from + 1);
  const types = [...new Set(leases.map((lease) => lease.gpu_type))];
  const lanes = [...types, "no GPUs"];
  const width = Math.max(320, place.clientWidth || 640);
  const height = TOP + lanes.length * LANE + AXIS;
  const toX = (at) => LEFT + ((Math.min(Math.max(at, from), to) - from) / (to - from)) * (width - LEFT - RIGHT);
  const chart = svg("svg", { class: "chart timeline", viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `Leases of job ${job.id} over time; the table below has the same.` });
  for (const at of timeTicks(from, to, Math.max(2, Math.floor((width - LEFT) / 130)))) {
    chart.append(svg("line", { class: "grid", x1: toX(at), x2: toX(at), y1: TOP, y2: height - AXIS }),
      svg("text", { x: toX(at), y: height - 8, "text-anchor": "middle" }, clock(at)));
  }
  lanes.forEach((lane, index) => chart.append(svg("text", { x: LEFT - 10, y: TOP + index * LANE + 20, "text-anchor": "end" }, lane)));
  const bar = (lane, begin, end, kind, title) => svg("rect", { class: `fill ${kind}`, x: toX(begin), rx: 3,
    y: TOP + lane * LANE + (LANE - BAR) / 2, width: Math.max(2, toX(end) - toX(begin)), height: BAR }, svg("title", {}, title));
  for (const [begin, end] of waits(job, leases, now)) {
    if (end > from) chart.append(bar(types.length, begin, end, "waits", `without GPUs for ${duration(end - begin)}`));
  }
  leases.forEach((lease, index) => {
    const lane = types.indexOf(lease.gpu_type);
    const begin = lease.started_at ?? lease.ended_at ?? now, end = lease.ended_at ?? now;
    const title = `lease ${before + index + 1}: ${lease.gpus} x ${lease.gpu_type}, ${duration(end - lease.granted_at)}; ${endOf(lease, leases[index + 1])}`;
    if (begin > lease.granted_at) chart.append(bar(lane, lease.granted_at, begin, `starts series-${lane % 8}`, title));
    if (lease.started_at !== null) chart.append(bar(lane, begin, end, `series-${lane % 8}`, title));
    if (lease.ended_at !== null) chart.append(svg("line", { class: `end ${lease.ending}`, x1: toX(end), x2: toX(end),
      y1: TOP + lane * LANE + 2, y2: TOP + (lane + 1) * LANE - 2 }));
  });
  const names = types.map((name) => ({ name: `on ${name} (pale: starting)` }));
  fill(place, chart, types.length ? legend(names) : null,
    before ? element("p", { class: "muted small" }, `${before} earlier leases are not shown.`) : null);
}
