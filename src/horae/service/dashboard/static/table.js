// Tables that stay still while they are read: new values change cells, and never the order of rows.
import { element } from "/static/horae.js";

/**
 * columns: { key, label, cell(row) -> text or element, value(row) -> what is sorted by (none: not sortable), align,
 * class, isQuiet (changes are not marked) }.
 * options: rowKey(row), filterText(row), empty (text), sort { key, descending }, onSort(sort): the service sorts.
 * `show(rows)` sorts anew; `update(rows)` changes the values of rows that are shown, and adds new ones at the end.
 * A link in the first column opens the row; with `opens`, a click anywhere in the row does.
 */
export class DataTable {
  constructor(place, columns, options = {}) {
    this.columns = columns;
    this.options = { rowKey: (row) => row.id, empty: "Nothing to show.", ...options };
    this.sort = options.sort ?? null;
    this.rows = [];
    this.lines = new Map(); // by key: { row, line, texts }
    this.wanted = "";
    this.body = element("tbody");
    if (options.opens) this.body.className = "opens";
    this.heads = columns.map((column) => this.#head(column));
    this.table = element("table", {}, element("thead", {}, element("tr", {}, this.heads)), this.body);
    if (options.caption) this.table.prepend(element("caption", { class: "unseen" }, options.caption));
    this.nothing = element("p", { class: "empty", hidden: true }, this.options.empty);
    place.replaceChildren(element("div", { class: "scroll", tabindex: "0", role: "region",
      "aria-label": options.caption ?? "Table" }, this.table), this.nothing);
    this.table.addEventListener("keydown", (event) => this.#key(event));
    if (options.opens) this.body.addEventListener("click", (event) => this.#open(event));
    document.addEventListener("keydown", (event) => {
      const isFree = !event.defaultPrevented && !event.target.closest("input, textarea, select, table, dialog, canvas");
      if (isFree && options.isMain !== false && "jk".includes(event.key) && !event.ctrlKey && !event.metaKey) {
        this.#move(event.key === "j" ? 0 : this.body.rows.length - 1);
      }
    });
    this.#mark();
  }

  /** Shows these rows in the order of the table. */
  show(rows) {
    this.rows = [...rows];
    this.#order();
    this.#draw();
  }

  /** Shows new values of rows; their order stays, and rows that are not given are removed. */
  update(rows) {
    const fresh = new Map(rows.map((row) => [this.options.rowKey(row), row]));
    const kept = this.rows.map((row) => this.options.rowKey(row)).filter((key) => fresh.has(key));
    const known = new Set(kept);
    this.rows = [...kept.map((key) => fresh.get(key)),
      ...rows.filter((row) => !known.has(this.options.rowKey(row)))];
    this.#draw();
  }

  /** Shows only rows whose text has all of these words. */
  filter(text) {
    this.wanted = text.trim().toLowerCase();
    this.#draw();
  }

  /** Has an input of the page filter this table, as it is typed. */
  filterBy(input) {
    input.dataset.filter = "";
    input.addEventListener("input", () => this.filter(input.value));
    return this;
  }

  #head(column) {
    const cell = element("th", { scope: "col", class: column.align === "right" ? "number" : undefined });
    if (!column.value) cell.append(column.label);
    else cell.append(element("button", { type: "button", class: "sort", on: { click: () => this.#sortBy(column) } },
      column.label));
    return cell;
  }

  #sortBy(column) {
    const isSame = this.sort?.key === column.key;
    this.sort = { key: column.key, descending: isSame ? !this.sort.descending : column.align === "right" };
    this.#mark();
    if (this.options.onSort) this.options.onSort(this.sort);
    else {
      this.#order();
      this.#draw();
    }
  }

  #mark() {
    this.columns.forEach((column, index) => {
      const isSorted = this.sort?.key === column.key;
      if (isSorted) this.heads[index].setAttribute("aria-sort", this.sort.descending ? "descending" : "ascending");
      else this.heads[index].removeAttribute("aria-sort");
    });
  }

  #order() {
    const column = this.columns.find((each) => each.key === this.sort?.key);
    if (!column?.value || this.options.onSort) return;
    const sign = this.sort.descending ? -1 : 1;
    const keyed = this.rows.map((row, index) => [column.value(row), index, row]);
    keyed.sort(([a, i], [b, j]) => {
      const none = (a === null || a === undefined) - (b === null || b === undefined); // what is not known comes last
      return none || (a < b ? -sign : a > b ? sign : i - j);
    });
    this.rows = keyed.map(([, , row]) => row);
  }

  #draw() {
    const words = this.wanted.split(/\s+/).filter(Boolean);
    const text = this.options.filterText ?? ((row) => Object.values(row).join(" "));
    const shown = words.length === 0 ? this.rows
      : this.rows.filter((row) => words.every((word) => text(row).toLowerCase().includes(word)));
    this.changed = [];
    const lines = shown.map((row) => this.#line(row));
    const isSame = lines.length === this.body.rows.length && lines.every((line, i) => line === this.body.rows[i]);
    if (!isSame) this.body.replaceChildren(...lines);
    const keys = new Set(this.rows.map((row) => this.options.rowKey(row)));
    for (const key of this.lines.keys()) if (!keys.has(key)) this.lines.delete(key);
    this.nothing.hidden = shown.length > 0;
    this.nothing.textContent = words.length && this.rows.length ? "No row has these words." : this.options.empty;
    this.table.hidden = shown.length === 0;
    flash(this.changed);
  }

  #line(row) {
    const key = this.options.rowKey(row);
    const known = this.lines.get(key);
    if (known?.row === row) return known.line;
    const line = known?.line ?? element("tr", { tabindex: "-1", "data-key": key }, this.columns.map((column) =>
      element("td", { class: column.align === "right" ? "number" : column.class })));
    const texts = known?.texts ?? [];
    this.columns.forEach((column, index) => {
      const content = column.cell(row) ?? "";
      const given = content instanceof Element ? content.outerHTML : String(content);
      if (texts[index] === given) return;
      texts[index] = given;
      line.cells[index].replaceChildren(content);
      if (known && !column.isQuiet) this.changed.push(line.cells[index]);
    });
    this.lines.set(key, { row, line, texts });
    return line;
  }

  #key(event) {
    const line = event.target.closest("tbody tr");
    if (!line || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = line.sectionRowIndex;
    const last = this.body.rows.length - 1;
    const to = { j: at + 1, ArrowDown: at + 1, k: at - 1, ArrowUp: at - 1, Home: 0, End: last }[event.key];
    if (to !== undefined) {
      this.#move(Math.min(Math.max(to, 0), last));
      event.preventDefault();
    } else if (event.key === "Enter" && event.target === line) line.querySelector("a")?.click();
  }

  #open(event) {
    if (event.defaultPrevented || event.target.closest("a, button, input") || String(getSelection())) return;
    event.target.closest("tr")?.querySelector("a")?.click();
  }

  #move(index) {
    const line = this.body.rows[index];
    (line?.querySelector("a") ?? line)?.focus();
  }
}

/** Marks cells that have changed; all together, because each look at the layout costs as much as for all. */
function flash(cells) {
  if (cells.length === 0) return;
  for (const cell of cells) cell.classList.remove("changed");
  void cells[0].offsetWidth; // restarts the animations
  for (const cell of cells) cell.classList.add("changed");
}
