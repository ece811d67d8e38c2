(() => {
  "use strict";
  const palettes = JSON.parse(document.getElementById("palettes").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const finePointer = matchMedia("(pointer: fine)").matches;
  const QUIET = 0.45;
  let printing = false;

  // The look of every chart, quiet: no legend (the page has its own), no box, hairline grid.
  const AXIS = {
    title: { standoff: 8, font: { size: 12 } },
    gridcolor: "var(--rule)",
    showline: true,
    linecolor: "var(--rule)",
    zeroline: false,
    ticks: "outside",
    tickcolor: "var(--rule)",
    automargin: true,
  };
  const LOOK = {
    template: { layout: { xaxis: AXIS, yaxis: AXIS } },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 13, color: "var(--soft)" },
    hoverlabel: { bgcolor: "var(--panel)", bordercolor: "var(--rule)", font: { color: "var(--ink)" } },
    margin: { l: 58, r: 12, t: 10, b: 46 },
    showlegend: false,
  };

  const palette = () => palettes[dark.matches && !printing ? "dark" : "light"];

  // Figures name their colours as CSS does; Plotly wants the colours themselves.
  const paint = (value, colours) => {
    if (typeof value === "string") {
      return value.replace(/var\(--([\w-]+)\)/g, (_, name) => colours[name]);
    }
    if (Array.isArray(value)) return value.map((item) => paint(item, colours));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, paint(v, colours)]));
  };

  const plots = [...document.querySelectorAll(".plot")].map((place) => ({
    place,
    spec: JSON.parse(place.nextElementSibling.textContent),
    figure: place.closest("figure"),
  }));
  // By figure: the methods whose buttons are pressed, the one that is pointed at, and those that
  // are brought out while there is neither.
  const emphasis = new Map([...document.querySelectorAll("figure")].map((figure) => [figure, {
    pressed: new Set(),
    pointed: null,
    always: new Set(JSON.parse(figure.dataset.broughtOut ?? "[]")),
  }]));

  const litOf = ({ pressed, pointed, always }) => {
    if (pointed) return new Set([...pressed, pointed]);
    return pressed.size > 0 ? pressed : always;
  };
  const quieten = (trace, colours) => {
    const grey = colours.grey;
    trace.opacity = QUIET;
    if (trace.line) trace.line.color = grey;
    if (trace.marker) trace.marker.color = grey;
    for (const bars of [trace.error_x, trace.error_y]) if (bars) bars.visible = false;
    if (trace.fill) trace.fillcolor = "rgba(0,0,0,0)";
  };

  const draw = (plot) => {
    const { clientWidth: width, clientHeight: height } = plot.place;
    if (width === 0) return; // hidden: drawn once it is shown
    const colours = palette();
    const { data, layout } = paint({ ...plot.spec, layout: { ...LOOK, ...plot.spec.layout } }, colours);
    const lit = litOf(emphasis.get(plot.figure));
    const isQuiet = (method) => lit.size > 0 && method && !lit.has(method);
    for (const trace of data) if (isQuiet(trace.meta)) quieten(trace, colours);
    for (const note of layout.annotations ?? []) if (isQuiet(note.name)) note.opacity = QUIET;
    const size = printing ? { width, height } : { autosize: true };
    const dragmode = finePointer ? "zoom" : false; // a drag on a phone is a scroll
    const config = { displayModeBar: false, responsive: true };
    const first = !plot.place.data;
    Plotly.react(plot.place, data, { ...layout, ...size, dragmode }, config);
    if (first) listen(plot);
  };
  const drawAll = () => plots.forEach(draw);
  const drawFigure = (figure) => plots.filter((plot) => plot.figure === figure).forEach(draw);

  const point = (figure, method) => {
    const known = emphasis.get(figure);
    if (known.pointed === method) return;
    known.pointed = method;
    drawFigure(figure);
  };
  const listen = ({ place, figure }) => {
    place.on("plotly_hover", ({ points }) => point(figure, points[0].data.meta ?? null));
    place.addEventListener("mouseleave", () => point(figure, null));
  };

  // A press brings a method out in its figure, and so does pointing at it.
  for (const legend of document.querySelectorAll(".legend")) {
    const figure = legend.parentElement;
    const { pressed } = emphasis.get(figure);
    const buttonOf = (event) => event.target.closest("button");
    legend.addEventListener("click", (event) => {
      const button = buttonOf(event);
      if (!button) return;
      const method = button.dataset.method;
      if (!pressed.delete(method)) pressed.add(method);
      emphasis.get(figure).pointed = null;
      button.setAttribute("aria-pressed", String(pressed.has(method)));
      legend.classList.toggle("choosing", pressed.size > 0);
      drawFigure(figure);
    });
    if (!finePointer) continue;
    legend.addEventListener("pointerover", (event) => point(figure, buttonOf(event)?.dataset.method ?? null));
    legend.addEventListener("pointerleave", () => point(figure, null));
  }

  // Charts in a folded section are drawn when it is opened.
  document.addEventListener("toggle", ({ target }) => {
    plots.filter((plot) => target.contains(plot.place)).forEach(draw);
  }, true);
  const reveal = () => {
    const wanted = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!wanted) return;
    wanted.querySelector(":scope > details.fold")?.setAttribute("open", "");
    for (let e = wanted; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true;
    wanted.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  document.addEventListener("click", ({ target }) => {
    if (target.closest("a")?.hash === location.hash) reveal(); // no change, no event
  });

  for (const copies of document.querySelectorAll(".copies")) {
    const texts = JSON.parse(copies.nextElementSibling.textContent);
    copies.addEventListener("click", async ({ target }) => {
      const format = target.dataset.format;
      if (!format) return;
      const done = await navigator.clipboard.writeText(texts[format]).then(() => true, () => false);
      target.textContent = done ? "Copied" : "Not allowed here";
      setTimeout(() => { target.textContent = format; }, 1500);
    });
  }

  // What is cut off at the side says so.
  const sign = (box) => {
    const hidden = box.scrollWidth - box.clientWidth - box.scrollLeft > 1;
    const before = box.scrollLeft > 1;
    box.dataset.cut = [before && "left", hidden && "right"].filter(Boolean).join(" ");
  };
  const watcher = new ResizeObserver((entries) => entries.forEach(({ target }) => sign(target)));
  for (const box of document.querySelectorAll(".scroll")) {
    watcher.observe(box);
    box.addEventListener("scroll", () => sign(box), { passive: true });
  }

  // Panes say at which values of which controls they are shown; no value chosen means all.
  for (const controls of document.querySelectorAll(".controls")) {
    const figure = controls.parentElement;
    const inputs = [...controls.querySelectorAll("input")];
    const nothing = figure.querySelector(".nothing");
    const own = plots.filter((plot) => figure.contains(plot.place));
    const panes = [...figure.querySelectorAll(".pane")].map((place) => ({
      place,
      at: Object.entries(JSON.parse(place.dataset.at)),
    }));

    const show = () => {
      const chosen = {};
      for (const input of inputs) {
        const values = (chosen[input.dataset.name] ??= new Set());
        if (input.checked) values.add(input.value);
      }
      const matches = ([name, value]) => !chosen[name]?.size || chosen[name].has(value);
      for (const { place, at } of panes) place.hidden = !at.every(matches);
      own.forEach(draw);
      nothing.hidden = panes.some(({ place, at }) => at.length > 0 && !place.hidden);
    };
    controls.addEventListener("input", show);
    show();
  }

  const folded = [...document.querySelectorAll("details.fold")];
  let closed = [];
  const print = (now) => () => {
    printing = now;
    if (now) closed = folded.filter((fold) => !fold.open);
    closed.forEach((fold) => { fold.open = now; });
    document.documentElement.classList.toggle("printing", now);
    drawAll();
  };
  addEventListener("beforeprint", print(true));
  addEventListener("afterprint", print(false));
  dark.addEventListener("change", drawAll);
  drawAll();
  if (location.hash) reveal();
})();
