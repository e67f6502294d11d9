// Which colour and which pattern a GPU has. Colours tell tenants, apps or rho apart; patterns tell kinds of use apart.
import { colour } from "/static/horae.js";

export const USES = {
  guaranteed: "guaranteed: in cells of its tenant",
  borrowed: "borrowed: outside its tenant's cells, may be preempted",
  shared: "shared: of a tenant without cells",
  other: "in use by another tenant",
  foreign: "used by others, not by Horae",
  failed: "failed",
  drained: "drained",
  free: "free",
};

/** The use of a GPU, as one of USES. */
export function useOf(map, gpu, node) {
  const job = map.holder[gpu];
  if (job >= 0) return map.jobs.kind[job];
  const why = map.unusable[gpu];
  if (why !== undefined) return why.startsWith("foreign") ? "foreign" : "failed";
  return { healthy: "free", draining: "drained" }[map.nodes.health[node]] ?? "failed";
}

const PALETTE = ["series-0", "series-1", "series-2", "series-3", "series-4", "series-5", "series-6", "series-7"];
const RHO = [[0.8, "below 0.8"], [1, "0.8 to 1"], [1.25, "1 to 1.25"], [1.5, "1.25 to 1.5"], [2, "1.5 to 2"], [Infinity, "2 and above"]];
const OTHER = "other tenants", UNKNOWN = "not known";

function hash(text) {
  let value = 2166136261;
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 16777619);
  return value >>> 0;
}

/** How the jobs of a map are coloured: key(job), colour(key), name(key), order(keys). */
export function colouring(map) {
  const { jobs } = map;
  const other = colour("foreign");
  if (map.colour === "rho") {
    const key = (job) => {
      const rho = jobs.rho[job];
      if (rho === null || rho === undefined) return UNKNOWN;
      return String(RHO.findIndex(([limit]) => rho < limit || limit === Infinity));
    };
    return {
      key,
      colour: (each) => (each === UNKNOWN ? other : colour(`rho-${each}`)),
      name: (each) => (each === UNKNOWN ? "ρ not known" : `ρ ${RHO[Number(each)][1]}`),
      order: (keys) => keys.sort(),
    };
  }
  const names = map.colour === "app" ? jobs.app : jobs.tenant;
  const all = [...new Set(names)].filter(Boolean).sort();
  // Tenants are few: each has its own colour, by its name. Apps are many: a colour may be that of several.
  const numbers = new Map(all.map((name, index) => [name, map.colour === "app" ? hash(name) : index]));
  const cache = new Map(PALETTE.map((name, index) => [index, colour(name)]));
  return {
    key: (job) => names[job] || OTHER,
    colour: (each) => (numbers.has(each) ? cache.get(numbers.get(each) % PALETTE.length) : other),
    name: (each) => each,
    order: (keys, counts) => keys.sort((a, b) => (a === OTHER) - (b === OTHER) ||
      (map.colour === "app" ? counts.get(b) - counts.get(a) : 0) || (a < b ? -1 : 1)),
  };
}
