// Sets the theme before the page is painted: "light" or "dark" as chosen here, otherwise that of the system.
{
  const chosen = localStorage.getItem("horae-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
