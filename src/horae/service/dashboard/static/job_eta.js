// When a job starts and ends, asked from the scheduler: an answer takes up to two seconds of a processor.
import { clock, duration, element, fill, Problem, read } from "/static/horae.js";

/** A time that most possible futures do not reach. */
export const FAR = "in over a month";

/** A time that is not certain, as text: the median, and where nine of ten futures lie. */
function momentText(moment) {
  if (moment.median === null) return FAR;
  const [low, high] = [moment.low, moment.high].map((at) => (at === null ? "later" : clock(at, false)));
  return low === high ? clock(moment.median, false) : `${clock(moment.median, false)} (${low} to ${high})`;
}

export const etaText = (eta) =>
  `${eta.starts ? `starts ${momentText(eta.starts)}, ` : ""}ends ${momentText(eta.ends)}`;

export const askEta = (jobId) => read(`/v1/jobs/${encodeURIComponent(jobId)}/eta`);

/** A block that asks once and shows the answer, its interval and its age. */
export class EtaBlock {
  constructor(place, jobId) {
    this.place = place;
    this.jobId = jobId;
    this.isAsking = false;
  }

  async ask() {
    if (this.isAsking) return;
    this.isAsking = true;
    fill(this.place, element("p", { class: "muted" }, "Looking at possible futures …"));
    try {
      this.#show(await askEta(this.jobId));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      fill(this.place, element("p", { class: "muted" }, error.message), this.#again("Ask"));
    } finally {
      this.isAsking = false;
    }
  }

  clear() {
    fill(this.place);
  }

  #again(text) {
    return element("button", { type: "button", id: "ask-eta", on: { click: () => this.ask() } }, text);
  }

  #show(eta) {
    const facts = [["Ends", momentText(eta.ends)]];
    if (eta.starts) facts.unshift(["Starts", momentText(eta.starts)]);
    const cut = eta.cut_off ? `, ${eta.cut_off} of which the time budget cut off` : "";
    const estimated = eta.estimated ? `, in ${eta.estimated} of which the end is an estimate` : "";
    const soon = eta.ends.median === null ? "" : ` The end is ${duration(eta.ends.median - eta.asked_at)} after that.`;
    fill(this.place, element("dl", { class: "facts eta" }, facts.flatMap(([label, text]) => [element("dt", {}, label), element("dd", {}, text)])),
      element("p", { class: "muted small" }, `Median of ${eta.draws} possible futures${cut}${estimated}, and where nine of ten lie; asked at ${clock(eta.asked_at)}.${soon}`),
      this.#again("Ask again"));
  }
}
