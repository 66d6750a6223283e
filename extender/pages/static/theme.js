// Light or dark: what the person chose on this page, else what the system says. Loaded before anything is drawn.
{
  const KEY = "tangram-theme";
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");

  // A browser that keeps nothing for this page has no choice to remember.
  const remembered = () => {
    try {
      return localStorage.getItem(KEY) ?? "";
    } catch {
      return "";
    }
  };
  const remember = (choice) => {
    try {
      localStorage.setItem(KEY, choice);
    } catch {
      return;
    }
  };

  let choice = remembered();
  const apply = () => {
    root.dataset.theme = ["light", "dark"].includes(choice) ? choice : system.matches ? "dark" : "light";
    dispatchEvent(new Event("theme"));
  };

  system.addEventListener("change", apply);
  addEventListener("DOMContentLoaded", () => {
    const select = document.getElementById("theme");
    select.value = choice;
    if (select.selectedIndex < 0) select.value = "";
    select.addEventListener("change", () => {
      choice = select.value;
      remember(choice);
      apply();
    });
  });
  apply();
}
