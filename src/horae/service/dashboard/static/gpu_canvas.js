// Where each GPU of a cluster is on a canvas, and how it is drawn: racks side by side, nodes as rows of GPUs.
import { colour } from "/static/horae.js";
import { useOf } from "/static/gpu_colours.js";

const SIZES = [[160, 22], [640, 17], [2500, 13], [6000, 10], [Infinity, 7]]; // of a GPU in pixels, by number of GPUs
const ROW_MAX = 16; // GPUs of a node in one row
const COLUMN_MAX = 24; // nodes one below the other
const FONT = 'system-ui, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif';

export class GpuLayout {
  constructor(nodes, width) {
    this.width = width;
    this.names = nodes.name.join("\n");
    const count = nodes.gpus.reduce((sum, gpus) => sum + gpus, 0);
    this.size = SIZES.find(([limit]) => count <= limit)[1];
    this.gap = this.size > 12 ? 2 : 1;
    this.hasNames = this.size >= 13;
    this.first = new Int32Array(nodes.gpus.length);
    this.nodeOf = new Int32Array(count);
    this.x = new Float32Array(count);
    this.y = new Float32Array(count);
    this.boxes = []; // by node: x, y, width, height
    this.groups = []; // name, x, y
    this.#place(nodes);
  }

  fits(nodes, width) {
    return this.width === width && this.names === nodes.name.join("\n");
  }

  box(gpu) {
    return [this.x[gpu], this.y[gpu], this.size];
  }

  /** The GPU at a point; -1: none. */
  at(x, y) {
    const node = this.boxes.findIndex(([left, top, width, height]) =>
      x >= left && x < left + width && y >= top && y < top + height);
    if (node < 0) return -1;
    const end = node + 1 < this.first.length ? this.first[node + 1] : this.nodeOf.length;
    for (let gpu = this.first[node]; gpu < end; gpu++) {
      if (x >= this.x[gpu] - 1 && x <= this.x[gpu] + this.size + 1 && y >= this.y[gpu] - 1 && y <= this.y[gpu] + this.size + 1) return gpu;
    }
    return -1;
  }

  #place(nodes) {
    let gpu = 0;
    for (let node = 0; node < nodes.gpus.length; node++) {
      this.first[node] = gpu;
      for (const end = gpu + nodes.gpus[node]; gpu < end; gpu++) this.nodeOf[gpu] = node;
    }
    const groups = this.#groups(nodes);
    const hasTitles = groups.some((group) => group.name);
    const title = hasTitles ? 18 : 0;
    let x = 0, y = 0, row = 0;
    const label = this.hasNames ? this.#labelWidth(nodes) : 0;
    for (const group of groups) {
      const columns = Math.ceil(group.nodes.length / COLUMN_MAX);
      const perColumn = Math.ceil(group.nodes.length / columns);
      const wide = Math.max(...group.nodes.map((node) => this.#rowWidth(nodes, node))) + label;
      const width = columns * (wide + 8) + 8;
      const tall = [];
      for (let i = 0; i < group.nodes.length; i++) tall[i % perColumn] = Math.max(tall[i % perColumn] ?? 0, this.#rows(nodes, group.nodes[i]));
      const height = title + tall.reduce((sum, rows) => sum + rows * (this.size + this.gap) + 5, 0) + 4;
      if (x > 0 && x + width > this.width) {
        x = 0;
        y += row + 12;
        row = 0;
      }
      const name = group.name + (new Set(group.nodes.map((node) => nodes.gpu_type[node])).size === 1 && this.size >= 10
        ? `${group.name ? " · " : ""}${nodes.gpu_type[group.nodes[0]]}` : "");
      this.groups.push({ name: hasTitles ? name : "", x, y, width: Math.min(width, this.width), height });
      this.#placeNodes(nodes, group.nodes, { x: x + 6, y: y + title + 2, perColumn, wide, label, tall });
      x += width + 10;
      row = Math.max(row, height);
    }
    this.height = y + row + 4;
  }

  #placeNodes(nodes, chosen, { x, y, perColumn, wide, label, tall }) {
    chosen.forEach((node, index) => {
      const column = Math.floor(index / perColumn);
      const left = x + column * (wide + 8);
      const top = y + tall.slice(0, index % perColumn).reduce((sum, rows) => sum + rows * (this.size + this.gap) + 5, 0);
      const inside = nodes.inside[node];
      for (let number = 0; number < nodes.gpus[node]; number++) {
        const gpu = this.first[node] + number;
        const at = number % ROW_MAX;
        this.x[gpu] = left + label + 2 + at * (this.size + this.gap) + (inside ? Math.floor(at / inside) * this.#cellGap : 0);
        this.y[gpu] = top + 2 + Math.floor(number / ROW_MAX) * (this.size + this.gap);
      }
      this.boxes[node] = [left, top, label + this.#rowWidth(nodes, node), this.#rows(nodes, node) * (this.size + this.gap) + 3];
    });
  }

  get #cellGap() {
    return this.size > 12 ? 5 : this.size > 8 ? 3 : 2;
  }

  #rows = (nodes, node) => Math.ceil(nodes.gpus[node] / ROW_MAX);

  #rowWidth(nodes, node) {
    const count = Math.min(nodes.gpus[node], ROW_MAX);
    const cells = nodes.inside[node] ? Math.ceil(count / nodes.inside[node]) - 1 : 0;
    return count * (this.size + this.gap) + cells * this.#cellGap + 3;
  }

  #labelWidth(nodes) {
    const longest = nodes.name.reduce((most, name) => Math.max(most, name.length), 0);
    return Math.min(110, 8 + 6.6 * longest);
  }

  /** Nodes of one rack together, in the order of the racks. */
  #groups(nodes) {
    const groups = new Map();
    nodes.group.forEach((name, node) => {
      const key = name.trim() || nodes.gpu_type[node];
      if (!groups.has(key)) groups.set(key, { name: name.trim(), nodes: [] });
      groups.get(key).nodes.push(node);
    });
    return [...groups.values()];
  }
}

/** Draws all GPUs: those of one colour and pattern at a time. */
export function paint(canvas, layout, map, { colouring, chosen, pointed }) {
  const ratio = window.devicePixelRatio || 1;
  const { width, height, size } = layout;
  const isNew = canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio);
  if (isNew) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  paintGroups(context, layout, map);
  const classes = new Map(); // by use and colour: GPUs
  for (let gpu = 0; gpu < map.holder.length; gpu++) {
    const job = map.holder[gpu];
    const use = useOf(map, gpu, layout.nodeOf[gpu]);
    const key = job >= 0 ? colouring.key(job) : "";
    const name = `${use}\t${key}`;
    if (!classes.has(name)) classes.set(name, { use, key, gpus: [] });
    classes.get(name).gpus.push(gpu);
  }
  for (const { use, key, gpus } of classes.values()) {
    const boxes = gpus.map((gpu) => [layout.x[gpu], layout.y[gpu]]);
    context.globalAlpha = chosen === null || chosen === key ? 1 : 0.16;
    paintUse(context, use, key ? colouring.colour(key) : colour("muted"), boxes, size);
  }
  context.globalAlpha = 1;
  paintSecond(context, layout, map, colouring);
  if (pointed >= 0) {
    const [x, y] = layout.box(pointed);
    context.strokeStyle = colour("text");
    context.lineWidth = 2;
    context.strokeRect(x - 1.5, y - 1.5, size + 3, size + 3);
  }
}

function paintGroups(context, layout, map) {
  const { size } = layout;
  for (const { name, x, y, width, height } of layout.groups) {
    if (!name) continue;
    context.fillStyle = colour("raised");
    context.fillRect(x, y, width, height);
    context.strokeStyle = colour("line");
    context.lineWidth = 1;
    context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
    context.fillStyle = colour("muted");
    context.font = `600 11px ${FONT}`;
    context.fillText(name, x + 6, y + 13, width - 10);
  }
  context.font = `11px ${FONT}`;
  layout.boxes.forEach(([x, y, width, height], node) => {
    if (layout.hasNames) {
      context.fillStyle = colour("muted");
      context.fillText(map.nodes.name[node], x, y + size / 2 + 6, layout.x[layout.first[node]] - x - 5);
    }
    const health = map.nodes.health[node];
    if (health === "healthy") return;
    const left = layout.x[layout.first[node]] - 2;
    context.strokeStyle = colour(health === "failed" ? "bad" : "warn");
    context.lineWidth = 1.5;
    context.setLineDash(health === "failed" ? [] : [4, 3]);
    context.strokeRect(left - 0.5, y - 0.5, x + width - left, height + 1);
    context.setLineDash([]);
  });
}

/** GPUs of one use and colour. Guaranteed ones are solid, others have a pattern that is seen without colour, too. */
function paintUse(context, use, ink, boxes, size) {
  const rects = (inset) => {
    context.beginPath();
    for (const [x, y] of boxes) context.rect(x + inset, y + inset, size - 2 * inset, size - 2 * inset);
  };
  const strokes = (draw, style, width) => {
    context.beginPath();
    for (const [x, y] of boxes) draw(x, y);
    context.strokeStyle = style;
    context.lineWidth = width;
    context.stroke();
  };
  const cross = (x, y) => {
    context.moveTo(x + 2, y + 2);
    context.lineTo(x + size - 2, y + size - 2);
    context.moveTo(x + size - 2, y + 2);
    context.lineTo(x + 2, y + size - 2);
  };
  if (["guaranteed", "borrowed", "shared", "other"].includes(use)) {
    rects(0);
    context.fillStyle = ink;
    context.fill();
  }
  if (use === "borrowed") {
    const half = size / 2;
    strokes((x, y) => {
      context.moveTo(x, y + half);
      context.lineTo(x + half, y);
      context.moveTo(x, y + size);
      context.lineTo(x + size, y);
      context.moveTo(x + half, y + size);
      context.lineTo(x + size, y + half);
    }, colour("surface"), Math.max(1, size / 9));
  } else if (use === "shared") {
    rects(Math.max(2, size * 0.3));
    context.fillStyle = colour("surface");
    context.fill();
  } else if (use === "free" || use === "drained") {
    rects(0.5);
    context.fillStyle = colour(use === "free" ? "empty-gpu" : "warn-soft");
    context.fill();
    context.strokeStyle = colour(use === "free" ? "line-strong" : "warn");
    context.lineWidth = 1;
    context.stroke();
  } else if (use === "failed") {
    rects(0.5);
    context.fillStyle = colour("bad-soft");
    context.fill();
    strokes(cross, colour("bad"), Math.max(1.2, size / 9));
    rects(0.5);
    context.stroke();
  } else if (use === "foreign") {
    rects(0);
    context.fillStyle = colour("foreign");
    context.fill();
    strokes((x, y) => {
      for (const part of [0.3, 0.7]) {
        context.moveTo(x, y + size * part);
        context.lineTo(x + size, y + size * part);
      }
    }, colour("surface"), Math.max(1, size / 8));
  }
}

/** The second of two jobs on one GPU: a triangle in its colour. */
function paintSecond(context, layout, map, colouring) {
  const { size } = layout;
  for (const [gpu, job] of Object.entries(map.second)) {
    const [x, y] = layout.box(Number(gpu));
    context.beginPath();
    context.moveTo(x + size, y);
    context.lineTo(x + size, y + size);
    context.lineTo(x, y + size);
    context.fillStyle = colouring.colour(colouring.key(job));
    context.fill();
  }
}

/** A GPU of this use and colour, for the legend. */
export function swatch(use, ink) {
  const canvas = document.createElement("canvas");
  const size = 14;
  canvas.width = canvas.height = size * 2;
  canvas.className = "swatch-canvas";
  canvas.setAttribute("aria-hidden", "true");
  const context = canvas.getContext("2d");
  context.scale(2, 2);
  paintUse(context, use, ink, [[0, 0]], size);
  return canvas;
}
