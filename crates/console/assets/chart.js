// Charts of series over time. Lines differ by dash and by name, not only by colour.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { past } from "./api.js";
import { number } from "./format.js";

const DASHES = [[], [8, 4], [2, 3], [12, 4, 2, 4], [5, 2], [1, 5]];
const LONGEST = 600;
const dash = (at) => DASHES[at % DASHES.length];
const colour = (at) => getComputedStyle(document.documentElement).getPropertyValue(`--line-${at % 6}`).trim();
const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// The history of the drawn lines, in their order.
function columns(told, names) {
  const known = new Map(told.lines.map((line) => [line.name, line.values]));
  return [told.times, ...names.map((name) => known.get(name) ?? told.times.map(() => null))];
}

function append(data, time, values) {
  const at = Math.floor(time);
  if (data[0].length && at <= data[0][data[0].length - 1]) return data;
  const drop = Math.max(0, data[0].length + 1 - LONGEST);
  return data.map((column, n) => [...column.slice(drop), n === 0 ? at : (values[n - 1] ?? null)]);
}

// Gauges use the left axis, rates the right one; in a small chart every line has its own scale.
const scaleOf = (line, at, mini) => (mini ? `line ${at}` : line.kind === "total" ? "rate" : "level");

// The minimum range of an axis: enough for integral steps where the unit is a count, and no more
// than small durations need.
function least(unit, scale) {
  if (unit === "seconds") return 0.001;
  return unit.startsWith("bytes") || scale === "level" ? 4 : 1;
}

// Draws a limit only if the line comes close to it.
const near = (lines, highest) => lines.map((line) => line.limit).filter((limit) => limit && limit <= highest * 2);

function scales(series, mini, shown) {
  const made = { x: {} };
  series.lines.forEach((line, at) => {
    const name = scaleOf(line, at, mini);
    const mine = () => shown.current.lines.filter((other, n) => scaleOf(other, n, mini) === name);
    made[name] = { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(least(series.unit, name), high ?? 0, ...near(mine(), high ?? 0)) * 1.05] };
  });
  return made;
}

function drawLimits(plot, lines) {
  const { ctx, bbox } = plot;
  const scale = plot.scales.level;
  if (!scale) return;
  ctx.save();
  ctx.strokeStyle = token("--dim");
  ctx.setLineDash([2, 4]);
  for (const limit of near(lines, scale.max)) {
    const y = plot.valToPos(limit, "level", true);
    if (y < bbox.top) continue;
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
  }
  ctx.restore();
}

function time(seconds, step) {
  const parts = { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...(step < 60 && { second: "2-digit" }) };
  return new Date(seconds * 1000).toLocaleTimeString("en", parts);
}

function axes(series, mini) {
  if (mini) return [{ show: false }];
  const grid = { stroke: token("--rule"), width: 1 };
  const axis = { stroke: token("--dim"), grid, ticks: grid, font: "11px system-ui, sans-serif" };
  const used = new Set(series.lines.map((line, at) => scaleOf(line, at, mini)));
  const upright = (scale, side, first) => ({
    ...axis,
    scale,
    side,
    size: series.unit.startsWith("bytes") ? 80 : 60,
    grid: { ...grid, show: first },
    values: (_, ticks) => ticks.map((tick) => number(tick, series.unit, scale === "rate")),
  });
  const clock = (_, ticks, __, ___, step) => ticks.map((tick) => time(tick, step));
  const made = [{ ...axis, space: 80, values: clock }];
  if (used.has("level")) made.push(upright("level", 3, true));
  if (used.has("rate")) made.push(upright("rate", used.has("level") ? 1 : 3, !used.has("level")));
  return made;
}

function options(series, size, mini, shown) {
  const made = axes(series, mini);
  return {
    ...size,
    legend: { show: false },
    cursor: { show: !mini, points: { size: 6 }, drag: { x: false, y: false } },
    // The last time label extends half beyond the axis, unless another axis is there.
    padding: mini ? [4, 0, 2, 0] : [8, made.length > 2 ? 12 : 32, 0, 0],
    scales: scales(series, mini, shown),
    axes: made,
    series: [{}, ...series.lines.map((line, at) => ({ label: line.name, scale: scaleOf(line, at, mini), stroke: colour(at), width: 1.75, dash: dash(at), spanGaps: false, points: { show: false } }))],
    hooks: { draw: [(plot) => drawLimits(plot, shown.current.lines)] },
  };
}

export function Chart({ panel, widget, series, points, time, span, theme, mini }) {
  const place = useRef();
  const plot = useRef();
  const data = useRef([[]]);
  const shown = useRef(series);
  const [under, setUnder] = useState(null);
  const names = series.lines.map((line) => line.name);
  const key = names.join("\n");
  shown.current = series;

  useEffect(() => {
    let gone = false;
    const height = mini ? 56 : 190;
    const width = () => Math.max(80, place.current.clientWidth);
    data.current = [[], ...names.map(() => [])];
    const made = new uPlot(options(series, { width: width(), height }, mini, shown), data.current, place.current);
    plot.current = made;
    if (!mini) made.over.addEventListener("mouseleave", () => setUnder(null));
    const load = () =>
      past(panel, widget, span)
        .then((told) => {
          if (gone) return;
          data.current = columns(told, names);
          made.setData(data.current);
        })
        .catch(() => {});
    load();
    const again = span === "10m" ? 0 : setInterval(load, span === "2h" ? 10000 : 60000);
    const watch = new ResizeObserver(() => made.setSize({ width: width(), height }));
    watch.observe(place.current);
    return () => {
      gone = true;
      clearInterval(again);
      watch.disconnect();
      made.destroy();
    };
  }, [panel, widget, key, span, theme]);

  useEffect(() => {
    if (span !== "10m" || !points) return;
    data.current = append(data.current, time, points);
    plot.current.setData(data.current);
    setUnder(plot.current.cursor.idx ?? null);
  }, [time]);

  const move = () => setUnder(plot.current?.cursor.idx ?? null);
  return html`<div class="chart ${mini ? "mini" : ""}" onMouseMove=${mini ? null : move}>
    <div class="plot" ref=${place} aria-hidden="true"></div>
    ${!mini && html`<${Legend} series=${series} points=${points} data=${data.current} under=${under} />`}
  </div>`;
}

// The legend: names, dashes and values, current or at the pointer.
function Legend({ series, points, data, under }) {
  const at = under !== null && data[0][under] ? ` at ${time(data[0][under], 1)}` : "";
  return html`<div class="legend">
    ${series.lines.map((line, n) => html`<span class="key" key=${line.name}><${Swatch} at=${n} />${line.name} <${Value} line=${line} unit=${series.unit} point=${at ? data[n + 1]?.[under] : points?.[n]} past=${Boolean(at)} /></span>`)}
    <span class="dim">${at}</span>
  </div>`;
}

export function Swatch({ at }) {
  return html`<svg class="swatch" width="26" height="8" aria-hidden="true">
    <line x1="0" y1="4" x2="26" y2="4" stroke="var(--line-${at % 6})" stroke-width="2.5" stroke-dasharray=${dash(at).join(" ")} />
  </svg>`;
}

// A counter is shown as its rate; the total stays readable in the tooltip and for programs.
export function Value({ line, unit, point, past }) {
  if (past) return html`<b>${number(point, unit, line.kind === "total")}</b>`;
  if (line.kind === "total") {
    return html`<data value=${line.value} title="${line.value} in all"><b>${number(point ?? null, unit, true)}</b> <span class="dim">${number(line.value, unit)} in all</span></data>`;
  }
  const most = line.limit ? html` <span class="dim">of ${number(line.limit, unit)}</span>` : "";
  return html`<data value=${line.value} title=${line.value}><b>${number(line.value, unit)}</b>${most}</data>`;
}
