// The time of each step of the job, drawn by uPlot; what was done to the fabric stands at its moment.

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** What the picture shows; `first` is the time of a step in the warm-up. */
export const STEPS_ABOUT = (first) => `each point is a step at its end; dashed: at first, ${first}; drag over a part to see it larger, double-click goes back`;

const ROW = 14; // height of a label
const LONGEST = 32; // of its letters: the terminal has all of them

export class StepChart {
  constructor(element) {
    this.element = element;
    this.steps = [];
    this.actions = [];
    this.healthy = null;
    this.plot = null;
    new ResizeObserver(() => this.#resize()).observe(element);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#make());
  }

  /** `steps`: {start_ns, step_ns}; `healthy` in ns or null; `actions`: {time_ns, line}. */
  /** `now`: the picture goes on until then, so that it shows if no step ends any more. */
  show(steps, healthy, actions = [], now = 0) {
    this.steps = steps;
    this.now = now;
    this.healthy = healthy;
    this.actions = actions;
    if (this.plot) this.plot.setData(this.#data());
    else this.#make();
  }

  #data() {
    const times = this.steps.map((step) => (step.start_ns + step.step_ns) / 1000);
    const line = this.healthy ? this.healthy / 1000 : null;
    const took = this.steps.map((step) => step.step_ns / 1000);
    if (times.length && this.now / 1000 > times.at(-1)) {
      times.push(this.now / 1000);
      took.push(null);
    }
    return [times, took, times.map(() => line)];
  }

  #make() {
    this.plot?.destroy();
    this.plot = null;
    if (!this.element.clientWidth) return;
    const axis = { stroke: css("--soft"), grid: { stroke: css("--edge"), width: 0.5 }, ticks: { stroke: css("--edge") }, font: "12px system-ui" };
    this.plot = new uPlot(
      {
        width: this.element.clientWidth,
        height: 210,
        scales: { x: { time: false }, y: { range: (_, low, high) => [0, Math.max(high ?? 1, 1) * 1.1] } },
        cursor: { drag: { x: true, y: false } },
        axes: [{ ...axis, label: "emulated time (us)", labelSize: 18, size: 34 }, { ...axis, size: 52, label: "us", labelSize: 16 }],
        series: [
          {},
          { stroke: css("--accent"), width: 1.5, points: { show: true, size: 5, fill: css("--accent") } },
          { stroke: css("--good"), width: 1, dash: [5, 4], points: { show: false } },
        ],
        hooks: { draw: [(plot) => this.#marks(plot)] },
      },
      this.#data(),
      this.element,
    );
  }

  /** A line at each action's moment; of labels that would overlap the later one stands a row lower, as long as there is room. */
  #marks(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = css("--bad");
    ctx.lineWidth = devicePixelRatio;
    ctx.font = `${11 * devicePixelRatio}px system-ui`;
    ctx.textAlign = "left"; // uPlot's axes leave theirs
    ctx.textBaseline = "alphabetic";
    const rows = Math.floor(bbox.height / (ROW * devicePixelRatio)) - 1;
    const taken = []; // of each row, how far to the right
    const shown = this.actions
      .map(({ time_ns: ns, line }) => ({ x: plot.valToPos(ns / 1000, "x", true), line: line.length > LONGEST ? `${line.slice(0, LONGEST)}…` : line }))
      .filter(({ x }) => x >= bbox.left && x <= bbox.left + bbox.width);
    ctx.beginPath();
    for (const { x } of shown) {
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
    }
    ctx.stroke();
    for (const { x, line } of shown) {
      const gap = 4 * devicePixelRatio, wide = ctx.measureText(line).width;
      const from = x + gap + wide < bbox.left + bbox.width ? x + gap : Math.max(x - gap - wide, bbox.left);
      let row = taken.findIndex((end) => end + gap < from);
      if (row < 0) row = taken.length;
      if (row >= rows) continue;
      taken[row] = from + wide;
      ctx.globalAlpha = 0.8; // what is behind it shows through a little
      ctx.fillStyle = css("--card");
      ctx.fillRect(from - gap / 2, bbox.top + row * ROW * devicePixelRatio, wide + gap, ROW * devicePixelRatio);
      ctx.globalAlpha = 1;
      ctx.fillStyle = css("--bad");
      ctx.fillText(line, from, bbox.top + (row * ROW + 12) * devicePixelRatio);
    }
    ctx.restore();
  }

  #resize() {
    if (!this.plot) this.#make();
    else if (this.element.clientWidth && this.plot.width !== this.element.clientWidth) this.plot.setSize({ width: this.element.clientWidth, height: 210 });
  }
}
