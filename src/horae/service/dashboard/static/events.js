// The log as it grows.
import { element, embedded, live, moment } from "/static/horae.js";
import { DataTable } from "/static/table.js";

const SHOWN = 1000;
const first = embedded();
let events = first.events;

const columns = [
  { key: "at", label: "Time", cell: (event) => moment(event.at) },
  { key: "kind", label: "Event", cell: (event) => event.kind },
  { key: "job_id", label: "Job", cell: (event) => event.job_id &&
    element("a", { href: `/jobs/${encodeURIComponent(event.job_id)}` }, event.job_id) },
  { key: "tenant", label: "Tenant", cell: (event) => event.tenant ?? "" },
  { key: "text", label: "What happened", class: "wide", cell: (event) => event.text },
];
const table = new DataTable(document.getElementById("table"), columns, {
  caption: "Events, the latest first", rowKey: (event) => event.seq, empty: "No events yet.",
}).filterBy(document.getElementById("filter"));

const kind = document.getElementById("kind");
const known = new Set();

function show() {
  for (const each of [...new Set(events.map((event) => event.kind))].sort()) {
    if (!known.has(each)) kind.append(element("option", { value: each }, each));
    known.add(each);
  }
  table.show(events.filter((event) => !kind.value || event.kind === kind.value));
}

kind.addEventListener("change", show);
show();
live({
  since: first.next,
  job: first.job ?? undefined,
  onEvents: (fresh) => {
    const seen = new Set(events.map((event) => event.seq));
    events = [...fresh.filter((event) => !seen.has(event.seq)).reverse(), ...events].slice(0, SHOWN);
    show();
  },
});
