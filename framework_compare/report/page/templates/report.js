"use strict";
// The page is whole without this script: it makes figures interactive, tables sortable and texts copyable.
(function () {
  const text = (id) => JSON.parse(document.getElementById(id).textContent);
  function unpacked(id) {
    const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (one) => one.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }

  const root = document.documentElement;
  const theme = document.getElementById("theme");
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  function darken(dark) {
    root.dataset.theme = dark ? "dark" : "light";
    theme.textContent = dark ? "Light" : "Dark";
  }
  if (theme) { // a page without the button has the colours of the system
    theme.parentElement.hidden = false;
    theme.addEventListener("click", () => darken(root.dataset.theme !== "dark"));
    system.addEventListener("change", () => darken(system.matches));
    darken(system.matches);
  }

  // Every figure has a layout for each of these widths, the widest first.
  const content = document.querySelector("main");
  const widths = JSON.parse(content.dataset.widths || "[0]");
  const fitting = () => String(widths.find((width) => width <= content.clientWidth) || widths[widths.length - 1]);

  // A figure is drawn when it comes near the window, so that a long report opens at once.
  let embed = null;
  async function load() {
    const script = document.createElement("script");
    const beside = document.body.dataset.vega; // a site has the bundle once, as a file
    const loaded = beside && new Promise((done, failed) => { script.onload = done; script.onerror = failed; });
    if (beside) script.src = beside;
    // The bundle's top-level names stay inside a function of their own.
    else script.textContent = "(function () {" + (await unpacked("vega")) + "\n})();";
    document.head.append(script);
    await loaded;
    return window.vegaEmbed;
  }
  // Rows of frameworks that are not shown are left out of the data; colours and names of the others stay.
  const hidden = new Set();
  function shown(part) {
    if (Array.isArray(part)) return part.filter((one) => !(one && hidden.has(one.framework_label))).map(shown);
    if (part === null || typeof part !== "object") return part;
    return Object.fromEntries(Object.entries(part).map(([name, value]) => [name, shown(value)]));
  }
  const drawings = new WeakMap(); // how often a plot's drawing has begun: only the last one is kept
  async function draw(plot) {
    const name = plot.dataset.text;
    const mine = (drawings.get(plot) || 0) + 1;
    drawings.set(plot, mine);
    const live = document.createElement("div");
    try {
      // ast: expressions are interpreted, as the page's policy allows no eval.
      embed = embed || load();
      const whole = JSON.parse(await unpacked(plot.dataset.spec));
      if (drawings.get(plot) !== mine) return;
      plot.dataset.width = fitting();
      const datasets = hidden.size ? shown(whole.datasets) : whole.datasets;
      const spec = { ...(whole.specs ? whole.specs[widths.indexOf(Number(plot.dataset.width))] : whole), datasets };
      plot.hidden = hidden.size > 0 && !JSON.stringify(datasets).includes('"framework_label":'); // no row is left to draw
      if (plot.hidden) { plot.dataset.live = "yes"; return; }
      await (await embed)(live, spec, { ast: true, renderer: "svg", actions: false, logLevel: 1 });
      if (drawings.get(plot) !== mine) return;
    } catch (error) {
      console.error(error);
      return;
    }
    const drawn = live.querySelector("svg");
    drawn.setAttribute("role", "img");
    drawn.setAttribute("aria-label", name);
    for (const inner of drawn.querySelectorAll("[role], [aria-label], [aria-roledescription]")) {
      for (const name of ["role", "aria-label", "aria-roledescription"]) inner.removeAttribute(name);
    }
    live.firstElementChild && plot.replaceChildren(live);
    plot.dataset.live = "yes";
  }
  const choices = document.querySelector(".choices.frameworks");
  if (choices) {
    choices.hidden = false;
    const boxes = Array.from(choices.querySelectorAll("input"));
    let turn = 0;
    choices.addEventListener("change", async () => {
      const mine = ++turn;
      const left = boxes.filter((box) => box.checked);
      for (const box of boxes) box.disabled = left.length === 1 && box.checked; // a figure of nothing says nothing
      hidden.clear();
      for (const box of boxes) if (!box.checked) hidden.add(box.value);
      // All of them: a still that was not drawn yet shows frameworks that are hidden now.
      const plots = document.querySelectorAll(".plot");
      for (const plot of plots) plot.dataset.live = ""; // at once, so that none passes for drawn before its turn
      for (const plot of plots) {
        if (mine !== turn) return; // a later choice draws them anew
        await draw(plot);
      }
    });
  }
  // One view of a figure is shown at a time; it is drawn once it is seen.
  for (const views of document.querySelectorAll(".choices.views")) {
    views.hidden = false;
    views.addEventListener("change", (event) => {
      for (const view of views.parentElement.querySelectorAll(".view")) {
        view.hidden = view.dataset.view !== event.target.value;
      }
    });
  }
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) { seen.unobserve(entry.target); draw(entry.target); }
    }
  }, { rootMargin: "200px" });
  new ResizeObserver(() => {
    for (const plot of document.querySelectorAll(".plot[data-width]")) {
      if (plot.dataset.width === fitting()) continue;
      plot.dataset.live = "";
      delete plot.dataset.width;
      seen.observe(plot);
    }
  }).observe(content);
  // Stills below the window follow one by one once the page is open; without scripts they all come with it.
  function loadStills(stills) {
    const image = stills.shift();
    if (!image) return;
    image.loading = "eager";
    image.decode().catch(() => {}).then(() => requestIdleCallback(() => loadStills(stills), { timeout: 200 }));
  }
  window.addEventListener("load", () => {
    for (const plot of document.querySelectorAll(".plot")) seen.observe(plot);
    loadStills(Array.from(document.querySelectorAll(".plot img")));
  });

  window.addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("details")) one.open = true; });

  for (const button of document.querySelectorAll("[data-copy]")) {
    button.parentElement.hidden = false;
    button.addEventListener("click", async () => {
      const area = document.createElement("textarea");
      area.value = text(button.dataset.copy);
      document.body.append(area);
      area.select();
      const copied = document.execCommand("copy");
      area.remove();
      const before = button.textContent;
      button.textContent = copied ? "Copied" : "Cannot copy here";
      setTimeout(() => { button.textContent = before; }, 1500);
    });
  }

  function sort(table, column, heading) {
    const down = heading.getAttribute("aria-sort") === "ascending";
    for (const other of table.querySelectorAll("thead th")) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const body = table.tBodies[0];
    const key = (row) => {
      const cell = row.cells[column];
      if (!cell.classList.contains("num")) return cell.textContent;
      return parseFloat(cell.dataset.value === undefined ? cell.textContent.replace(/^[≈~]\s*/, "") : cell.dataset.value);
    };
    const rows = Array.from(body.rows).map((row) => [key(row), row]);
    const sign = down ? -1 : 1;
    rows.sort(([a], [b]) => {
      if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
      return sign * (typeof a === "number" ? a - b : a.localeCompare(b));
    });
    body.append(...rows.map(([, row]) => row));
  }
  for (const table of document.querySelectorAll(".sortable")) {
    Array.from(table.querySelectorAll("thead tr:last-child th")).forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = heading.textContent;
      button.addEventListener("click", () => sort(table, column, heading));
      heading.replaceChildren(button);
    });
  }
})();
