// A report's page: the network coloured by what its ports counted, and charts on one time axis. All data is in the page.

const told = JSON.parse(at("data").textContent);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function network(about) {
  const figures = new Map(Object.entries(about.ports).map(([name, row]) => [name, new Port(about.columns, row, null, about.end_ns)]));
  const port = (name) => figures.get(name);
  const cables = new Map(about.cables.map((cable) => [cable.name, cable]));
  const nodes = new Map(about.nodes.map((node) => [node.name, node]));
  const tip = at("tip");
  const line = (name) => {
    const of = port(name);
    if (!of) return name;
    const parts = [`sent ${count(of.now("tx_frames"))} frames, ${bytes(of.now("tx_bytes"))} (${percent(of.load())})`, `received ${count(of.now("rx_frames"))}`];
    for (const [column, word] of [["drops", "dropped"], ["ecn_marked", "marked"], ["tx_pause", "pauses sent"], ["rx_pause", "pauses received"]])
      if (of.now(column)) parts.push(`${word} ${count(of.now(column))}`);
    return `${name}: ${parts.join(", ")}`;
  };
  const faults = (kind, name) => about.faults.filter((fault) => fault[`${kind}s`].includes(name)).map((fault) => `fault ${fault.name}: ${fault.fault}`);
  const text = (kind, name) => {
    const head = kind === "node" ? `${name}: ${nodes.get(name)?.about ?? ""}` : `cable ${name}`;
    const ports = kind === "node" ? [...figures.keys()].filter((one) => one.startsWith(`${name}:`)) : cables.get(name)?.ends ?? [];
    return [head, ...ports.map(line), ...faults(kind, name)].join("\n");
  };
  const drawing = new Network(at("drawing"), about, {
    chosen: (kind, name) => { drawing.choose(kind, name); at("place").textContent = text(kind, name); at("place").style.whiteSpace = "pre-line"; },
    hover: (place, event) => {
      tip.hidden = !place;
      if (!place) return;
      tip.textContent = text(place.kind, place.name);
      const { innerWidth, innerHeight } = window;
      tip.style.left = `${Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8)}px`;
      tip.style.top = `${Math.min(event.clientY + 12, innerHeight - tip.offsetHeight - 8)}px`;
    },
  });
  const metrics = METRICS.filter((metric) => metric.name !== "queue");
  const paint = (name) => {
    const metric = metrics.find((one) => one.name === name);
    drawing.paint(metric, port);
    drawing.mark(about.faults, [], port);
    const entry = ([level, text]) => make("span", {}, make("i", { class: level || null }), text);
    fill(at("legend"), make("span", { class: "soft" }, metric.about), ...levels(metric).map(entry));
  };
  choice(at("metric"), metrics.map((metric) => [metric.name, metric.label, metric.about]), "load", paint);
  paint("load");
}

const COLOURS = ["#2563eb", "#ea580c", "#16a34a", "#9333ea", "#dc2626", "#0891b2", "#ca8a04", "#64748b"];

function numbers(text, type) {
  const raw = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  return new type(raw.buffer);
}

/** A thin line at each event, behind the series. */
function marks(plot) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = css("--bad");
  ctx.globalAlpha = 0.5;
  ctx.setLineDash([4, 4]);
  for (const { us } of told.events) {
    const x = plot.valToPos(us, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

function charts() {
  const sync = uPlot.sync("time");
  const end = Math.max(...told.charts.map((chart) => numbers(chart.x, Float64Array).at(-1) ?? 0));
  const plots = [];
  const zoomed = (from) => {
    const { min, max } = from.scales.x;
    for (const plot of plots) if (plot !== from && (plot.scales.x.min !== min || plot.scales.x.max !== max)) plot.setScale("x", { min, max });
  };
  for (const chart of told.charts) {
    const element = make("div", { class: "chart" }, make("h3", {}, `${chart.title} (${chart.unit})`), make("p", { class: "soft small" }, chart.about));
    at("charts").append(element);
    const axis = { stroke: css("--soft"), grid: { stroke: css("--edge"), width: 0.5 }, ticks: { stroke: css("--edge") }, font: "12px system-ui" };
    const show = (value) => (value === null || value === undefined ? "" : String(Number(value.toPrecision(5))));
    const values = chart.y.map((one) => numbers(one, Float32Array));
    const { names } = chart;
    const top = values.reduce((most, one) => one.reduce((a, b) => Math.max(a, b), most), 0) || 1;
    const floor = (k) => names.length - 1 - k;
    const look = (k) => (chart.strips
      ? { stroke: COLOURS[0], width: 1, fill: `${COLOURS[0]}66`, fillTo: () => floor(k), value: (_, value) => (value === null ? "" : show((value - floor(k)) / 0.85 * top)) }
      : { stroke: COLOURS[k % COLOURS.length], width: 1.2 + 0.8 * Math.max(Math.min(names.length, 4) - 1 - k, 0), value: (_, value) => show(value) });
    const series = names.map((name, k) => ({ label: name, points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }), ...look(k) }));
    const rows = chart.strips ? values.map((one, k) => one.map((value) => floor(k) + 0.85 * value / top)) : values;
    const height = chart.strips ? 50 + 26 * names.length : 190;
    const upright = chart.strips
      ? { ...axis, size: Math.max(60, 16 + 6.6 * Math.max(...names.map((name) => name.length))), grid: { show: false }, ticks: { show: false }, splits: () => names.map((_, k) => floor(k) + 0.3), values: () => names }
      : { ...axis, size: 60 };
    const span = chart.strips ? () => [0, names.length] : (_, low, high) => [Math.min(low ?? 0, 0), (high || 1) * 1.08];
    const plot = new uPlot(
      {
        width: element.clientWidth, height,
        cursor: { sync: { key: sync.key }, drag: { x: true, y: false } },
        scales: { x: { time: false, range: (_, min, max) => (min === null ? [0, end || 1] : [min, max]) }, y: { range: span } },
        axes: [{ ...axis, size: 30, values: (_, ticks) => ticks.map((tick) => `${tick} us`) }, upright],
        series: [{ label: "us", value: (_, value) => show(value) }, ...series],
        hooks: { drawAxes: [marks], setScale: [(plot, key) => { if (key === "x") zoomed(plot); }] },
      },
      [numbers(chart.x, Float64Array), ...rows],
      element,
    );
    plots.push(plot);
    new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height })).observe(element);
  }
  for (const plot of plots) plot.setScale("x", { min: 0, max: end || 1 });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => location.reload());
  fill(at("events"), ...told.events.map(({ us, text }) => make("li", {}, `${Number(us.toFixed(3))} us: ${text}`)));
}

if (told.network) network(told.network);
if (told.charts?.length) charts();
