// What every page has: the theme, the keyboard, times in the reader's time zone.

const themes = ["system", "light", "dark"];
const root = document.documentElement;
const button = document.getElementById("theme");

function showTheme() {
  const name = root.dataset.theme ?? "system";
  button.textContent = `Theme: ${name}`;
  button.setAttribute("aria-label", `Theme: ${name}. Change it.`);
}

function nextTheme() {
  const name = themes[(themes.indexOf(root.dataset.theme ?? "system") + 1) % themes.length];
  if (name === "system") delete root.dataset.theme;
  else root.dataset.theme = name;
  localStorage.setItem("horae-theme", name);
  showTheme();
  document.dispatchEvent(new Event("horae-theme"));
}

showTheme();
button.addEventListener("click", nextTheme);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
  document.dispatchEvent(new Event("horae-theme")));

const keys = document.getElementById("keys");
document.getElementById("help").addEventListener("click", () => keys.showModal());

const isTyping = (target) => target.closest("input, textarea, select, [contenteditable]") !== null;
let goes = false; // after "g", a digit opens a page

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || keys.open) return;
  if (isTyping(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const pages = document.querySelectorAll("header nav a");
  if (goes && pages[Number(event.key) - 1]) pages[Number(event.key) - 1].click();
  goes = event.key === "g";
  const filter = document.querySelector("[data-filter]");
  if (event.key === "?") keys.showModal();
  else if (event.key === "t") nextTheme();
  else if (event.key === "/" && filter) filter.focus();
  else return;
  event.preventDefault();
});
