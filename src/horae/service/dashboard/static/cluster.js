// Every GPU of the cluster, drawn on a canvas: 16,384 elements of a document would be too slow.
import { clock, colour, duration, element, embedded, fill, fixed, live, percent, read, whole } from "/static/horae.js";
import { DataTable } from "/static/table.js";
import { GpuLayout, paint, swatch } from "/static/gpu_canvas.js";
import { colouring, USES, useOf } from "/static/gpu_colours.js";

const place = (id) => document.getElementById(id);
const canvas = place("gpus");
let map = embedded();
let layout = null;
let chosen = null; // the key whose GPUs are shown alone
let pointed = -1; // the GPU whose details are shown
let byNode = null;

// ---- Drawing

function show() {
  const width = place("map").clientWidth;
  if (layout === null || !layout.fits(map.nodes, width)) layout = new GpuLayout(map.nodes, width);
  draw();
  figures();
  legend();
  if (byNode !== null) byNode.update(nodeRows());
}

function draw() {
  paint(canvas, layout, map, { colouring: colouring(map), chosen, pointed });
}

function figures() {
  const counts = Object.fromEntries(Object.keys(USES).map((use) => [use, 0]));
  for (let gpu = 0; gpu < map.holder.length; gpu++) counts[useOf(map, gpu, layout.nodeOf[gpu])]++;
  const total = map.holder.length;
  const held = counts.guaranteed + counts.borrowed + counts.shared + counts.other;
  const shown = [
    ["GPUs", whole(total), `${whole(map.nodes.name.length)} nodes`],
    ["In use", percent(held / (total || 1)), `${whole(held)} GPUs`],
    ["Guaranteed", whole(counts.guaranteed), "in own cells"],
    ["Borrowed", whole(counts.borrowed), "outside own cells"],
    ["Shared", whole(counts.shared), "of tenants without cells"],
    ["Used by others", whole(counts.foreign), "not by Horae"],
    ["Out of use", whole(counts.failed + counts.drained), "failed or drained"],
    ["Free", whole(counts.free), ""],
  ];
  if (counts.other) shown.splice(5, 0, ["Other tenants", whole(counts.other), "in use"]);
  fill("figures", shown.map(([name, value, note]) => element("div", {}, element("dt", {}, name),
    element("dd", {}, value, " ", element("small", {}, note)))));
}

const LEGEND_MAX = 14;

function legend() {
  const colours = colouring(map);
  const counts = new Map();
  for (const job of map.holder) if (job >= 0) {
    const key = colours.key(job);
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  const keys = colours.order([...counts.keys()], counts);
  const items = keys.slice(0, LEGEND_MAX).map((key) => element("li", {},
    element("button", { type: "button", class: "quiet", "aria-pressed": String(chosen === key), "data-key": key,
      title: "Show these alone" }, swatch("guaranteed", colours.colour(key)), ` ${colours.name(key)} `,
    element("span", { class: "muted" }, whole(counts.get(key))))));
  if (keys.length > LEGEND_MAX) items.push(element("li", {}, `and ${whole(keys.length - LEGEND_MAX)} more`));
  if (map.colour === "rho") items.push(element("li", {}, "ρ = time taken over time on a fair share; above 1 is worse"));
  fill("legend", items);
  const used = new Set(map.holder.map((_, gpu) => useOf(map, gpu, layout.nodeOf[gpu])));
  fill("patterns", Object.entries(USES).filter(([use]) => used.has(use))
    .map(([use, text]) => element("li", {}, swatch(use, colour("muted")), ` ${text}`)));
}

place("legend").addEventListener("click", ({ target }) => {
  const button = target.closest("button");
  if (!button) return;
  chosen = chosen === button.dataset.key ? null : button.dataset.key;
  draw();
  legend();
  place("legend").querySelector(`[data-key="${CSS.escape(button.dataset.key)}"]`)?.focus();
});

place("colour").addEventListener("change", async () => {
  chosen = null;
  const name = place("colour").value;
  history.replaceState(null, "", name === "tenant" ? location.pathname : `?colour=${name}`);
  map.colour = name;
  if (name === "rho") map = await read();
  show();
});

// ---- Details of one GPU

function details(gpu) {
  const node = layout.nodeOf[gpu];
  const { nodes, jobs } = map;
  const number = gpu - layout.first[node];
  const use = useOf(map, gpu, node);
  const lines = [[null, `${nodes.name[node]}/${number}`, nodes.gpu_type[node]]];
  const inside = nodes.inside[node];
  lines.push(["Where", [nodes.group[node], `node ${nodes.name[node]}`,
    inside ? `${nodes.inside_level[node]} ${Math.floor(number / inside)}` : ""].filter(Boolean).join(", ")]);
  lines.push(["Use", USES[use] + (map.unusable[gpu]?.includes(": ") ? ` (${map.unusable[gpu].split(": ").slice(1).join(": ")})` : "")]);
  if (nodes.health[node] !== "healthy") lines.push(["Node", `${nodes.health[node]}${nodes.reason[node] ? `: ${nodes.reason[node]}` : ""}`]);
  for (const job of [map.holder[gpu], map.second[gpu] ?? -1]) {
    if (job < 0) continue;
    if (jobs.kind[job] === "other") lines.push(["Job", "of another tenant"]);
    else {
      lines.push(["Job", `${jobs.id[job]} ${jobs.name[job]} (${jobs.state[job]}, ${jobs.gpus[job]} GPUs)`],
        ["Tenant", `${jobs.tenant[job]}, app ${jobs.app[job]}, user ${jobs.user[job]}`]);
      if (jobs.started_at[job]) lines.push(["Since", `${clock(jobs.started_at[job])}, ${duration(Date.now() / 1000 - jobs.started_at[job])}`]);
      if (jobs.rho[job] !== undefined && jobs.rho[job] !== null) lines.push(["ρ", fixed(jobs.rho[job])]);
    }
  }
  return lines;
}

function point(gpu, isSpoken = false) {
  if (gpu === pointed) return;
  pointed = gpu;
  const tip = place("tip");
  tip.hidden = gpu < 0;
  if (gpu >= 0) {
    const [[, name, type], ...facts] = details(gpu);
    fill(tip, element("p", {}, element("strong", {}, name), ` ${type}`),
      element("dl", { class: "facts" }, facts.flatMap(([label, text]) => [element("dt", {}, label), element("dd", {}, text)])));
    const [x, y, size] = layout.box(gpu);
    const room = place("map").clientWidth;
    tip.style.left = `${Math.max(0, Math.min(x, room - tip.offsetWidth))}px`;
    tip.style.top = `${y + size + 8}px`;
    if (isSpoken) place("spoken").textContent = [`GPU ${name} ${type}`, ...facts.map((each) => each.join(" "))].join("; ");
  }
  canvas.classList.toggle("opens", gpu >= 0 && jobAt(gpu) !== null);
  draw();
}

function jobAt(gpu) {
  const job = map.holder[gpu] ?? -1;
  return job >= 0 && map.jobs.kind[job] !== "other" ? map.jobs.id[job] : null;
}

const open = (gpu) => jobAt(gpu) !== null && location.assign(`/jobs/${encodeURIComponent(jobAt(gpu))}`);

canvas.addEventListener("pointermove", (event) => point(layout.at(event.offsetX, event.offsetY)));
canvas.addEventListener("pointerleave", () => point(-1));
canvas.addEventListener("click", () => open(pointed));
canvas.addEventListener("blur", () => point(-1));
canvas.addEventListener("keydown", (event) => {
  const at = Math.max(pointed, 0);
  const node = layout.nodeOf[at];
  const byNodes = (step) => {
    const next = Math.min(Math.max(node + step, 0), map.nodes.name.length - 1);
    return layout.first[next] + Math.min(at - layout.first[node], map.nodes.gpus[next] - 1);
  };
  const to = { ArrowRight: () => at + 1, ArrowLeft: () => at - 1, ArrowDown: () => byNodes(1), ArrowUp: () => byNodes(-1),
    j: () => byNodes(1), k: () => byNodes(-1), Home: () => 0, End: () => map.holder.length - 1 }[event.key];
  if (event.key === "Enter") open(pointed);
  else if (event.key === "Escape") point(-1);
  else if (to) {
    point(pointed < 0 ? 0 : Math.min(Math.max(to(), 0), map.holder.length - 1), true);
    event.preventDefault();
  }
});

// ---- The table by node

function nodeRows() {
  const rows = map.nodes.name.map((name, node) => ({ node, name, jobs: new Set(),
    ...Object.fromEntries(Object.keys(USES).map((use) => [use, 0])) }));
  for (let gpu = 0; gpu < map.holder.length; gpu++) {
    const row = rows[layout.nodeOf[gpu]];
    row[useOf(map, gpu, row.node)]++;
    if (map.holder[gpu] >= 0) row.jobs.add(map.jobs.id[map.holder[gpu]]);
  }
  return rows;
}

const TITLES = { guaranteed: "Guaranteed", borrowed: "Borrowed", shared: "Shared", other: "Other tenants",
  foreign: "By others", failed: "Failed", drained: "Drained", free: "Free" };

place("by-node").addEventListener("toggle", () => {
  if (byNode !== null || !place("by-node").open) return;
  const counts = Object.entries(TITLES).map(([use, label]) => ({ key: use, label, align: "right",
    value: (row) => row[use], cell: (row) => row[use] || "" }));
  byNode = new DataTable(place("table"), [
    { key: "name", label: "Node", value: (row) => row.node, cell: (row) => row.name },
    { key: "group", label: "Rack", value: (row) => map.nodes.group[row.node], cell: (row) => map.nodes.group[row.node] },
    { key: "type", label: "Type", value: (row) => map.nodes.gpu_type[row.node], cell: (row) => map.nodes.gpu_type[row.node] },
    { key: "gpus", label: "GPUs", align: "right", value: (row) => map.nodes.gpus[row.node], cell: (row) => map.nodes.gpus[row.node] },
    ...counts,
    { key: "health", label: "Node is", value: (row) => map.nodes.health[row.node], cell: (row) =>
      [map.nodes.health[row.node], map.nodes.reason[row.node]].filter(Boolean).join(": ") },
    { key: "jobs", label: "Jobs", class: "wide", cell: (row) => [...row.jobs].join(", ") },
  ], { caption: "GPUs by node", rowKey: (row) => row.node, filterText: (row) =>
    [row.name, map.nodes.group[row.node], map.nodes.gpu_type[row.node], map.nodes.health[row.node], ...row.jobs].join(" ") });
  byNode.filterBy(place("filter")).show(nodeRows());
});

// ---- Life

show();
performance.mark("horae-painted");
document.addEventListener("horae-theme", show);
new ResizeObserver(() => layout.width !== place("map").clientWidth && show()).observe(place("map"));
live({
  refresh: async () => {
    map = { ...(await read()), colour: map.colour };
    show();
  },
});
