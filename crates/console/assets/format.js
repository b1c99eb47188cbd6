// Formatting of numbers and states. The exact number is always in the page, as the element's value.

import { html } from "./vendor/preact-htm.js";

const plain = (digits) => new Intl.NumberFormat("en", { maximumFractionDigits: digits });
const exact = plain(0);
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const few = plain(2);

function count(n) {
  const size = Math.abs(n);
  if (size >= 100000) return short.format(n);
  return size >= 100 || Number.isInteger(n) ? exact.format(n) : few.format(n);
}

function bytes(n) {
  const names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  while (Math.abs(n) >= 1024 && at < names.length - 1) {
    n /= 1024;
    at += 1;
  }
  return `${plain(at && n < 100 ? 1 : 0).format(n)} ${names[at]}`;
}

function seconds(n) {
  const size = Math.abs(n);
  if (size === 0) return "0 s";
  if (size < 0.001) return `${exact.format(n * 1e6)} µs`;
  if (size < 1) return `${exact.format(n * 1000)} ms`;
  if (size < 120) return `${plain(1).format(n)} s`;
  if (size < 7200) return `${exact.format(n / 60)} min`;
  return size < 172800 ? `${plain(1).format(n / 3600)} h` : `${plain(1).format(n / 86400)} d`;
}

const units = {
  count,
  percent: (n) => `${plain(1).format(n)} %`,
  seconds,
  bytes,
  tokens: (n) => `${count(n)} tok`,
  per_second: (n) => `${count(n)}/s`,
  bytes_per_second: (n) => `${bytes(n)}/s`,
  tokens_per_second: (n) => `${count(n)} tok/s`,
  unix_time: (n) => new Date(n * 1000).toLocaleString(),
};

// `rate`: the number is the rate of something counted in `unit`.
export function number(value, unit, rate) {
  if (value === null || value === undefined) return "–";
  const text = (units[unit] ?? count)(value);
  return rate && !text.endsWith("/s") ? `${text}/s` : text;
}

const marks = { good: "●", idle: "○", warning: "▲", bad: "■" };
const words = { good: "good", idle: "idle", warning: "look at this", bad: "does not work" };

export function Health({ health }) {
  const why = health.why ? `: ${health.why}` : "";
  return html`<span class="health ${health.state}"
    ><span aria-hidden="true">${marks[health.state] ?? "?"}</span> ${words[health.state] ?? health.state}${why}</span
  >`;
}

export function Cell({ cell, unit }) {
  if (cell === null || cell === undefined) return html`<span class="dim">–</span>`;
  if (typeof cell === "number") return html`<data value=${cell} title=${cell}>${number(cell, unit)}</data>`;
  if (typeof cell === "boolean") return cell ? "yes" : "no";
  if (typeof cell === "object") return html`<${CellHealth} health=${cell} />`;
  return html`<span title=${cell}>${cell}</span>`;
}

// In a table the reason alone is enough.
function CellHealth({ health }) {
  const text = health.why ?? words[health.state] ?? health.state;
  return html`<span class="health ${health.state}"><span aria-hidden="true">${marks[health.state] ?? "?"}</span> ${text}</span>`;
}

// The sort key of a cell.
export function rank(cell) {
  if (cell === null || cell === undefined) return "";
  return typeof cell === "object" ? `${cell.state} ${cell.why ?? ""}` : cell;
}
