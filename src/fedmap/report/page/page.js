"use strict";
(() => {
  const page = JSON.parse(document.getElementById("data").textContent);
  const views = [];
  // What the reader has changed survives that a served page is loaded again.
  const kept = `fedmap ${location.href}`;
  const before = page.live ? JSON.parse(sessionStorage.getItem(kept) || "{}") : {};
  const hidden = new Set(before.hidden || []);
  if (page.live) history.scrollRestoration = "manual"; // charts that come later would push it away
  const folds = [...document.querySelectorAll("details")];
  const title = (one) => one.querySelector("summary").textContent.split(":")[0];
  for (const one of folds) if ((before.open || []).includes(title(one))) one.open = true;

  // Columns become rows; texts are kept once, with their places.
  const rowsOf = (columns) => {
    const names = Object.keys(columns);
    const at = (column, i) => (column.names ? column.names[column.at[i]] : column[i]);
    const count = names.length ? (columns[names[0]].at || columns[names[0]]).length : 0;
    return Array.from({ length: count }, (_, i) =>
      Object.fromEntries(names.map((name) => [name, at(columns[name], i)])));
  };

  const draw = (place) => {
    const spec = structuredClone(page.charts[place.dataset.chart]);
    const rows = spec.data.name;
    spec.datasets = { ...spec.datasets, [rows]: rowsOf(page.rows[rows]) };
    const how = {
      actions: false, ast: true, renderer: "svg", defaultStyle: false,
      tooltip: { disableDefaultStyle: true },
      logLevel: 1, // errors: that a chart is empty, or as tall as its rows, is no news
    };
    return vegaEmbed(place, spec, how).then(({ view }) => { views.push(view); });
  };

  const tell = (name, value) =>
    Promise.all(views.map((view) => view.signal(name, value).runAsync()));

  // The legend: a method is switched off and on in all charts and tables at once.
  const buttons = [...document.querySelectorAll(".legend button[data-method]")];
  const showHidden = () => {
    for (const button of buttons) {
      button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.method)));
    }
    for (const row of document.querySelectorAll("table[data-methods] tbody tr")) {
      row.classList.toggle("off", hidden.has(row.cells[0].textContent));
    }
    return tell("hidden", [...hidden]);
  };
  for (const button of buttons) {
    button.querySelector(".swatch").style.background = `var(${button.dataset.color})`;
    button.addEventListener("click", () => {
      const method = button.dataset.method;
      if (!hidden.delete(method)) hidden.add(method);
      showHidden();
    });
  }
  document.getElementById("all")?.addEventListener("click", () => {
    const any = hidden.size > 0;
    hidden.clear();
    if (!any) for (const button of buttons) hidden.add(button.dataset.method);
    showHidden();
  });

  // What is looked at closer.
  for (const choice of document.querySelectorAll("select[data-signal]")) {
    const name = choice.dataset.signal;
    const wanted = (before.chosen || {})[choice.id];
    if ([...choice.options].some((one) => one.value === wanted)) choice.value = wanted;
    choice.addEventListener("change", () => {
      for (const other of document.querySelectorAll(`select[data-signal="${name}"]`)) {
        other.value = choice.value;
      }
      tell(name, choice.value);
    });
  }

  // Tables: a click on a head sorts, another one turns the order.
  const number = (text) => {
    const found = text.trim().match(/^[+\-−]?\d+(\.\d+)?/);
    return found ? Number(found[0].replace("−", "-")) : null;
  };
  const compare = (a, b) => {
    const [x, y] = [number(a), number(b)];
    if (x !== null && y !== null) return x - y;
    if (x !== null || y !== null) return x !== null ? -1 : 1;
    return a.localeCompare(b, undefined, { numeric: true });
  };
  const sort = (table, head) => {
    const column = head.cellIndex;
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const lines = [...table.tBodies[0].rows];
    const text = (line) => line.cells[column].textContent;
    const known = (line) => text(line) !== "-"; // what is not known stays at the end
    lines.sort((a, b) => (known(b) - known(a)) ||
      (down ? compare(text(b), text(a)) : compare(text(a), text(b))));
    table.tBodies[0].append(...lines);
  };
  for (const table of document.querySelectorAll(".scroll > table")) {
    if (!table.tHead) continue;
    if (table.tHead.rows[0].cells[0].textContent === "method") table.dataset.methods = "";
    for (const head of table.tHead.rows[0].cells) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => sort(table, head));
    }
  }

  // While runs go on: the page is loaded again when there is something new.
  const again = () => {
    const choices = [...document.querySelectorAll("select[data-signal]")];
    const now = {
      hidden: [...hidden],
      chosen: Object.fromEntries(choices.map((one) => [one.id, one.value])),
      open: folds.filter((one) => one.open).map(title),
      top: scrollY,
    };
    sessionStorage.setItem(kept, JSON.stringify(now));
    location.reload();
  };
  const look = async () => {
    if (document.hidden) return;
    try {
      const answer = await fetch(location.href, { method: "HEAD", cache: "no-store" });
      if (answer.ok && answer.headers.get("ETag") !== page.live.version) again();
      document.body.classList.remove("lost");
    } catch {
      document.body.classList.add("lost"); // the server has ended; it may come back
    }
  };
  if (page.live) setInterval(look, page.live.milliseconds);

  // On paper nothing is folded but the longest tables.
  addEventListener("beforeprint", () => {
    for (const one of document.querySelectorAll("details:not(:has(.tall))")) one.open = true;
  });

  const places = [...document.querySelectorAll(".chart")];
  Promise.all(places.map(draw))
    .then(() => {
      const choices = [...document.querySelectorAll("select[data-signal]")];
      return Promise.all(choices.map((one) => tell(one.dataset.signal, one.value)));
    })
    .then(showHidden)
    .then(() => {
      if (before.top) scrollTo(0, before.top);
      document.body.dataset.ready = "yes";
    });
})();
