// The parts of all pages: data, live updates, changes, elements, formats. No other code is loaded.

// ---- Data

export const embedded = () => JSON.parse(document.getElementById("data").textContent);

const pageUrl = () => document.body.dataset.url + location.search;

export class Problem extends Error {
  constructor(problem) {
    super([problem.field, problem.detail, problem.remedy && `(${problem.remedy})`].filter(Boolean).join(" "));
    this.status = problem.status;
    this.problem = problem;
  }
}

async function request(url, options) {
  const answer = await fetch(url, { credentials: "same-origin", ...options });
  if (answer.status === 401) {
    location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
    throw new Problem({ status: 401, detail: "the session has ended" });
  }
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({ detail: answer.statusText }));
    throw new Problem({ status: answer.status, ...problem });
  }
  return answer;
}

/** JSON of this service; without a path, the data of this page. */
export const read = async (url = pageUrl(), options = {}) => (await request(url, options)).json();
export const readText = async (url, options = {}) => request(url, options);

/** Requests a change. The header shows that this module sends it, and no other site. */
export async function send(method, url, body, signal) {
  const headers = { "X-Horae-Dashboard": "1", ...(body === undefined ? {} : { "Content-Type": "application/json" }) };
  const answer = await request(url, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  return answer.status === 204 ? null : answer.json();
}

// ---- Live updates

const SILENT_MS = 40_000; // the service says something every 15 s
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

function showConnection(state, text) {
  const place = document.getElementById("connection");
  const lost = document.getElementById("lost");
  if (place.dataset.state !== state) {
    place.dataset.state = state;
    place.textContent = text;
  }
  lost.hidden = state !== "lost";
  if (state === "lost" && !lost.textContent) {
    const at = new Date().toLocaleTimeString();
    lost.textContent = `The connection to the service is lost since ${at}. What you see is from then; it is tried again.`;
  }
  if (state !== "lost") lost.textContent = "";
}

/**
 * Follows the log and calls `refresh` after events, soon but not more often than the page can follow. `onEvents` gets
 * the events themselves. After a lost connection it resumes with the event after the last one, so nothing is missed.
 * A page in the background has no connection, because a browser allows few; it catches up when it is shown.
 */
export function live({ refresh, onEvents, job, since = embedded().seq }) {
  let last = since;
  let due = false;
  let running = false;
  let stream = null;

  async function update() {
    due = true;
    if (running) return;
    running = true;
    while (due && !document.hidden) {
      due = false;
      const began = performance.now();
      try {
        await refresh?.();
        document.body.dataset.updates = Number(document.body.dataset.updates ?? 0) + 1;
      } catch (error) {
        if (error.name === "AbortError") break;
        if (error.status === undefined) due = true; // the connection: tried again
        else console.warn(error.message);
        await sleep(1000);
      }
      await sleep(Math.max(100, performance.now() - began));
    }
    running = false;
  }

  async function follow() {
    let pause = 500;
    while (!document.hidden) {
      stream = new AbortController();
      let watchdog;
      const alive = () => {
        clearTimeout(watchdog);
        watchdog = setTimeout(() => stream.abort(), SILENT_MS);
      };
      try {
        alive();
        const url = "/v1/events/stream" + (job === undefined ? "" : `?job=${encodeURIComponent(job)}`);
        const answer = await request(url, { headers: { "Last-Event-ID": String(last) }, signal: stream.signal });
        const wasLost = document.getElementById("connection").dataset.state === "lost";
        showConnection("live", "Live");
        pause = 500;
        if (wasLost) update();
        for await (const events of parsed(answer.body, alive)) {
          for (const event of events) last = Math.max(last, event.seq);
          const real = events.filter((event) => event.kind !== undefined);
          if (real.length === 0) continue;
          onEvents?.(real);
          update();
        }
      } catch (error) {
        if (error.status === 429) console.warn(error.message);
      }
      clearTimeout(watchdog);
      if (document.hidden) break;
      showConnection("lost", "Connection lost");
      await sleep(pause);
      pause = Math.min(pause * 1.5, 5000);
    }
    showConnection("idle", "Paused");
    stream = null;
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) stream?.abort();
    else if (stream === null) {
      follow();
      update();
    }
  });
  window.addEventListener("pagehide", () => stream?.abort());
  follow();
  return { update };
}

/** The events of a stream, in the groups in which they arrive; an event without data only moves the position. */
async function* parsed(body, alive) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    alive();
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    const events = [];
    for (const block of blocks) {
      const fields = Object.fromEntries(block.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line]));
      if (fields.data) events.push(JSON.parse(fields.data.slice(6)));
      else if (fields.id) events.push({ seq: Number(fields.id.slice(4)) });
    }
    if (events.length) yield events;
  }
}

// ---- Elements

/** An element with attributes and children; strings are text, never markup. Attribute `on` has listeners. */
export function element(tag, attributes = {}, ...children) {
  const made = tag.startsWith("svg:")
    ? document.createElementNS("http://www.w3.org/2000/svg", tag.slice(4))
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [kind, listener] of Object.entries(value)) made.addEventListener(kind, listener);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** Replaces the content of an element, found by its id or given. */
export function fill(place, ...children) {
  const found = typeof place === "string" ? document.getElementById(place) : place;
  found.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return found;
}

export const badge = (state) => element("span", { class: "badge", "data-state": state }, state);

/** Shows what has happened to a request, and for a problem its remedy. */
export function say(text, kind = "good") {
  const place = document.getElementById("said") ??
    document.getElementById("main").insertAdjacentElement("afterbegin", element("p", { id: "said", role: "status" }));
  place.className = `notice ${kind}`;
  place.textContent = text;
}

// ---- Formats

const NONE = "–";
const isNone = (value) => value === null || value === undefined || Number.isNaN(value);

/** Up to three significant digits, with separators: 12,400 · 3.14 · 0.0021. */
export function number(value, digits = 3) {
  if (isNone(value)) return NONE;
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return value.toLocaleString("en", { maximumSignificantDigits: digits });
}

export const whole = (value) => (isNone(value) ? NONE : Math.round(value).toLocaleString("en"));
export const fixed = (value, digits = 2) => (isNone(value) ? NONE : value.toFixed(digits));
export const percent = (value, digits = 0) => (isNone(value) ? NONE : `${(100 * value).toFixed(digits)}%`);

/** 42 s · 3 min 20 s · 5 h 03 min · 2 d 4 h. */
export function duration(seconds) {
  if (isNone(seconds)) return NONE;
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${String(s % 60).padStart(2, "0")} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${String(Math.floor((s % 3600) / 60)).padStart(2, "0")} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}

/** A Unix time in the reader's time zone: the time of day, with the date unless it is today. */
export function clock(unix, withSeconds = true) {
  if (isNone(unix)) return NONE;
  const date = new Date(1000 * unix);
  const two = (value) => String(value).padStart(2, "0");
  const time = `${two(date.getHours())}:${two(date.getMinutes())}${withSeconds ? `:${two(date.getSeconds())}` : ""}`;
  if (date.toDateString() === new Date().toDateString()) return time;
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${time}`;
}

export const moment = (unix) =>
  isNone(unix) ? NONE : element("time", { datetime: new Date(1000 * unix).toISOString() }, clock(unix));

const colours = new Map();
for (const target of [document, matchMedia("(prefers-color-scheme: dark)")]) {
  target.addEventListener(target === document ? "horae-theme" : "change", () => colours.clear());
}

/** A colour variable of the present theme, for a canvas. */
export function colour(name) {
  if (!colours.has(name)) {
    colours.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  }
  return colours.get(name);
}
