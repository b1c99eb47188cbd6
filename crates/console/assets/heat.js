// Values by row and column. The number is always shown; the shade is only an addition.

import { html } from "./vendor/preact-htm.js";
import { number } from "./format.js";

const ROWS = 40;
const COLUMNS = 30;
const SHADES = 8;

// Waits and sizes span orders of magnitude, so the shade is logarithmic.
function shade(value, lowest, highest) {
  if (value === null || highest <= lowest) return value === null ? "" : "shade-1";
  const log = (n) => Math.log1p(((n - lowest) / (highest - lowest)) * 99) / Math.log(100);
  return `shade-${Math.round(log(value) * (SHADES - 1))}`;
}

export function Heat({ body, title }) {
  const skipped = Math.max(0, body.columns.length - COLUMNS);
  const columns = body.columns.slice(skipped);
  const rows = body.rows.slice(0, ROWS);
  const values = rows.map((_, at) => body.values[at].slice(skipped));
  const known = values.flat().filter((value) => value !== null);
  const [lowest, highest] = [Math.min(...known), Math.max(...known)];
  const left = [skipped && `${skipped} earlier columns`, body.rows.length > ROWS && `${body.rows.length - ROWS} more rows`].filter(Boolean);
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${title}>
    <table class="heat">
      <thead><tr><td></td>${columns.map((name) => html`<th scope="col" key=${name}>${name}</th>`)}</tr></thead>
      <tbody>
        ${rows.map((name, at) => html`<tr key=${name}>
          <th scope="row">${name}</th>
          ${values[at].map((value, n) => html`<td key=${n} class=${shade(value, lowest, highest)}><data value=${value} title=${value}>${number(value, body.unit)}</data></td>`)}
        </tr>`)}
      </tbody>
    </table>
    ${left.length > 0 && html`<p class="dim">not shown: ${left.join(", ")}</p>`}
  </div>`;
}
