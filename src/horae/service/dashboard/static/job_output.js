// The output of a job: its end, and what it writes from then on. It is read by position, so nothing is missed or twice.
import { element, readText } from "/static/horae.js";

const SHOWN = 400_000; // characters; what came before is a download
const TAIL = 65_536;

export class Output {
  constructor(jobId, place, state, follow) {
    this.url = `/v1/jobs/${encodeURIComponent(jobId)}/logs`;
    this.place = place;
    this.state = state;
    this.follow = follow;
    this.next = null;
    this.isReading = false;
    this.decoder = new TextDecoder();
    follow.addEventListener("change", () => this.#toEnd());
    place.addEventListener("wheel", ({ deltaY }) => {
      if (deltaY < 0) follow.checked = false;
    }, { passive: true });
  }

  /** Reads what was written since; returns whether there was anything. */
  async read() {
    if (this.isReading) return false;
    this.isReading = true;
    try {
      const from = this.next === null ? `tail=${TAIL}` : `offset=${this.next}`;
      const answer = await readText(`${this.url}?${from}`);
      const bytes = await answer.arrayBuffer();
      const next = Number(answer.headers.get("Horae-Log-Next"));
      const begin = next - bytes.byteLength;
      if (this.next !== null && begin > this.next) this.#add(`\n[${begin - this.next} bytes of output were deleted before they were read]\n`);
      if (this.next === null) this.#begins(begin);
      this.next = next;
      this.#add(this.decoder.decode(bytes, { stream: true }));
      return bytes.byteLength > 0;
    } finally {
      this.isReading = false;
    }
  }

  #begins(at) {
    this.state.replaceChildren(at > 0 ? "the end of it; " : "", element("a", { href: `${this.url}?offset=0`, download: "output.log" }, "download"));
  }

  #add(text) {
    if (text) {
      if (this.place.dataset.empty !== undefined) this.place.textContent = "";
      delete this.place.dataset.empty;
      this.place.append(text);
      while (this.place.textContent.length > SHOWN && this.place.childNodes.length > 1) this.place.firstChild.remove();
      this.#toEnd();
    } else if (!this.place.textContent) {
      this.place.dataset.empty = "";
      this.place.textContent = "Nothing was written yet.";
    }
  }

  #toEnd() {
    if (this.follow.checked) this.place.scrollTop = this.place.scrollHeight;
  }
}
