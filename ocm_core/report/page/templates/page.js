(() => {
  "use strict";
  const palettes = JSON.parse(document.getElementById("palettes").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const finePointer = matchMedia("(pointer: fine)").matches;
  const FADED = 0.12;
  let printing = false;

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
    chosen: new Set(),
  }));

  const draw = (plot) => {
    const { clientWidth: width, clientHeight: height } = plot.place;
    if (width === 0) return; // hidden: drawn once it is shown
    const { data, layout } = paint(plot.spec, palette());
    for (const trace of data) {
      const faded = plot.chosen.size > 0 && trace.meta && !plot.chosen.has(trace.meta);
      if (faded) trace.opacity = FADED;
      if (faded && trace.fill) trace.fillcolor = "rgba(0,0,0,0)";
    }
    const size = printing ? { width, height } : { autosize: true };
    const dragmode = finePointer ? "zoom" : false; // a drag on a phone is a scroll
    const config = { displayModeBar: false, responsive: true };
    Plotly.react(plot.place, data, { ...layout, ...size, dragmode }, config);
  };
  const drawAll = () => plots.forEach(draw);

  // A press brings a method out in its figure; with none pressed all are shown.
  for (const legend of document.querySelectorAll(".legend")) {
    const own = plots.filter((plot) => legend.parentElement.contains(plot.place));
    const chosen = new Set();
    own.forEach((plot) => { plot.chosen = chosen; });
    legend.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      const method = button.dataset.method;
      if (!chosen.delete(method)) chosen.add(method);
      button.setAttribute("aria-pressed", String(chosen.has(method)));
      legend.classList.toggle("choosing", chosen.size > 0);
      own.forEach(draw);
    });
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

    const slide = (input) => {
      const value = JSON.parse(input.dataset.values)[Number(input.value)];
      input.setAttribute("aria-valuetext", value);
      input.nextElementSibling.textContent = value;
      return value;
    };
    const show = () => {
      const chosen = {};
      for (const input of inputs) {
        const values = (chosen[input.dataset.name] ??= new Set());
        if (input.type === "range") values.add(slide(input));
        else if (input.checked) values.add(input.value);
      }
      const matches = ([name, value]) => !chosen[name]?.size || chosen[name].has(value);
      for (const { place, at } of panes) place.hidden = !at.every(matches);
      own.forEach(draw);
      nothing.hidden = panes.some(({ place, at }) => at.length > 0 && !place.hidden);
    };
    controls.addEventListener("input", show);
    show();
  }

  const print = (now) => () => {
    printing = now;
    document.documentElement.classList.toggle("printing", now);
    drawAll();
  };
  addEventListener("beforeprint", print(true));
  addEventListener("afterprint", print(false));
  dark.addEventListener("change", drawAll);
  drawAll();
})();
