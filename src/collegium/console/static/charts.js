// Line charts with the look of reports, drawn by uPlot.
"use strict";

collegium.format = (() => {
  const number = new Intl.NumberFormat("en");
  const fixed = (value, digits) => value.toFixed(digits).replace(/\B(?=(\d{3})+(?!\d))/g, ",");

  function bytes(n) {
    for (const [by, unit] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) if (n >= by) return `${fixed(n / by, 1)} ${unit}`;
    return `${fixed(n, n % 1 ? 1 : 0)} B`;
  }

  function seconds(s) {
    if (s === null || s === undefined) return "-";
    if (s < 10) return `${s.toFixed(1)} s`;
    if (s < 60) return `${Math.round(s)} s`;
    const minutes = Math.floor(s / 60);
    if (minutes < 60) return `${minutes} min ${Math.floor(s % 60)} s`;
    return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  }

  const percent = (share) => (share === null || share === undefined ? "-" : `${(100 * share).toFixed(1)}%`);
  const points = (percents) => `${percents.toFixed(1)}%`;
  const plain = (value) => (Math.abs(value) >= 1000 ? fixed(value, 0) : String(+value.toPrecision(4)));
  const time = (unix) => new Date(unix * 1000).toLocaleTimeString("en-GB");
  return { number: (n) => number.format(n), bytes, seconds, percent, points, plain, time };
})();

// A chart in the place `plot-KEY`. Lines are {name, kind, colour}, where kind is one of
// line, dash, hair, mean, low and high; the last two have an area between them.
collegium.chart = (key, { height = 230, onRange = null } = {}) => {
  const place = document.getElementById(`plot-${key}`), legend = document.getElementById(`legend-${key}`);
  const figure = place.closest("figure");
  const readout = document.createElement("p");
  readout.className = "readout";
  readout.setAttribute("aria-hidden", "true");
  place.after(readout);
  let plot = null, lines = [], data = [[]], shape = "", unit = collegium.format.plain, floor = null;

  const faint = (colour, alpha) => colour + Math.round(255 * alpha).toString(16).padStart(2, "0");

  function stroke(line) {
    if (line.kind === "hair") return faint(collegium.colour("hair"), 0.42);
    if (line.kind === "mean") return collegium.colour("ink");
    if (line.kind === "low" || line.kind === "high") return "transparent";
    return collegium.colour(`c${line.colour % 12}`);
  }

  function several(values) {
    let known = 0;
    for (const value of values) if (value !== null && value !== undefined && ++known > 1) return true;
    return false;
  }

  function series() {
    return lines.map((line) => ({
      label: line.name,
      stroke: () => stroke(line),
      width: { hair: 1, mean: 3, low: 0, high: 0 }[line.kind] ?? 1.8,
      dash: line.kind === "dash" ? [6, 4] : undefined,
      // A line of one point would not be seen.
      points: { show: (u, i) => line.kind !== "low" && line.kind !== "high" && !several(u.data[i]), size: 7 },
      spanGaps: true,
    }));
  }

  function axes() {
    const common = {
      stroke: () => collegium.colour("muted"),
      font: "12px system-ui, sans-serif",
      grid: { stroke: () => collegium.colour("grid"), width: 1 },
      ticks: { show: false },
    };
    const whole = (u, marks) => marks.map((mark) => (Number.isInteger(mark) ? collegium.format.number(mark) : ""));
    return [
      { ...common, values: whole, grid: { show: false }, space: 60, size: 26 },
      { ...common, values: (u, marks) => marks.map((mark) => unit(mark)), size: (u, shown) => width(shown), gap: 6 },
    ];
  }

  const width = (shown) => 16 + 7 * Math.max(3, ...(shown ?? []).map((text) => text.length));

  function point(u) {
    const at = u.cursor.idx;
    if (at === null || at === undefined || !u.data[0].length) { readout.textContent = "\u00a0"; return; }
    const said = [];
    lines.forEach((line, i) => {
      const value = u.data[i + 1][at];
      if (value === null || value === undefined) return;
      const near = u.series[i + 1]._focus && plotted.length > 0;
      if (line.kind === "hair" ? near : line.kind !== "low" && line.kind !== "high") said.push(`${line.name} ${unit(value)}`);
    });
    const few = said.length > 8 ? [...said.slice(0, 8), "…"] : said;
    readout.textContent = `Round ${collegium.format.number(u.data[0][at])}: ${few.join(", ")}`;
  }
  const plotted = [];

  function build() {
    if (plot) plot.destroy();
    place.replaceChildren();
    const band = lines.findIndex((line) => line.kind === "high");
    plot = new uPlot({
      width: Math.max(240, place.clientWidth),
      height: innerWidth < 740 ? Math.min(height, 210) : height,
      scales: {
        x: { time: false, range: (u, low, high) => (low === high ? [low - 1, high + 1] : [low, high]) },
        y: { range: (u, low, high) => padded(low, high) },
      },
      series: [{}, ...series()],
      bands: band < 0 ? [] : [{ series: [band + 1, band + 2], fill: () => faint(collegium.colour("accent"), 0.15) }],
      axes: axes(),
      legend: { show: false },
      cursor: {
        y: false,
        focus: { prox: lines.length > 3 ? 24 : -1 },
        drag: { x: onRange !== null, y: false, setScale: false },
        points: { size: 6 },
      },
      focus: { alpha: 0.35 },
      hooks: {
        setCursor: [point],
        setSeries: [(u) => point(u)],
        setSelect: [(u) => {
          if (onRange === null || u.select.width < 8) return;
          const first = Math.floor(u.posToVal(u.select.left, "x"));
          const last = Math.ceil(u.posToVal(u.select.left + u.select.width, "x"));
          u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          onRange(Math.max(0, first), last);
        }],
      },
    }, data, place);
    plotted[0] = plot;
  }

  function padded(low, high) {
    if (low === null || high === null) return [0, 1];
    const pad = Math.max((high - low) * 0.08, Math.abs(high) * 0.01, 1e-6);
    const bottom = floor !== null && low >= floor ? Math.max(floor, low - pad) : low - pad;
    return [floor === 0 ? 0 : bottom, high + pad];
  }

  function name() {
    legend.replaceChildren();
    const kinds = new Set();
    for (const line of lines) {
      const once = { hair: "one site", low: "", high: "from the worst to the best" }[line.kind];
      if (once !== undefined && (once === "" || kinds.has(line.kind))) continue;
      kinds.add(line.kind);
      const item = document.createElement("li"), mark = document.createElement("i");
      mark.className = line.kind === "hair" ? "hair" : line.kind === "mean" ? "mean" : line.kind === "high" ? "band all" : `s${line.colour % 12}`;
      if (line.kind === "dash") mark.classList.add("dash");
      item.append(mark, once ?? line.name);
      legend.append(item);
    }
  }

  function set(newLines, newData, options = {}) {
    unit = options.unit ?? unit;
    floor = options.floor ?? null;
    lines = newLines;
    data = newData;
    figure.hidden = lines.length === 0;
    if (figure.hidden) return;
    const now = JSON.stringify(lines.map((line) => [line.name, line.kind, line.colour]));
    if (now !== shape || !plot) {
      shape = now;
      name();
      build();
    } else {
      plot.setData(data);
    }
    if (options.label) place.setAttribute("aria-label", options.label);
  }

  let fitting = 0;
  new ResizeObserver(() => {
    cancelAnimationFrame(fitting);
    fitting = requestAnimationFrame(() => {
      if (plot && place.clientWidth && place.clientWidth !== plot.width) plot.setSize({ width: place.clientWidth, height: plot.height });
    });
  }).observe(place);
  collegium.onColours(() => plot && build());
  return { set };
};
