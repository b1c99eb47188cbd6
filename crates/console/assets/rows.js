// Virtualized rows: the document holds only one screenful at a time.

import { html } from "./vendor/preact-htm.js";
import { Cell } from "./format.js";

export const SCREEN = 25;

const numeric = (rows, column) => rows.some((row) => typeof row.cells[column] === "number");

function Heading({ column, at, sort, onSort, right }) {
  const name = onSort
    ? html`<button class="sort" onClick=${() => onSort(at)}>${column.name}<span aria-hidden="true">${sort?.at === at ? (sort.down ? " ▼" : " ▲") : ""}</span></button>`
    : column.name;
  const direction = sort?.at === at ? (sort.down ? "descending" : "ascending") : null;
  return html`<th scope="col" class=${right ? "right" : ""} aria-sort=${direction}>${name}</th>`;
}

// `lead(row)` renders before the first cell of a row, such as the arrow of a tree. `open(row)`
// shows the details of a row.
export function Rows({ title, columns, rows, sort, onSort, lead, open }) {
  const right = columns.map((_, at) => numeric(rows, at));
  const first = (row) => {
    const cell = html`<${Cell} cell=${row.cells[0]} unit=${columns[0]?.unit} />`;
    return open ? html`<button class="link" onClick=${() => open(row)}>${cell}</button>` : cell;
  };
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${title}>
    <table>
      <thead>
        <tr>${columns.map((column, at) => html`<${Heading} key=${at} column=${column} at=${at} sort=${sort} onSort=${onSort} right=${right[at]} />`)}</tr>
      </thead>
      <tbody>
        ${rows.map(
          (row) => html`<tr key=${row.id}>
            ${columns.map((column, at) =>
              at === 0
                ? html`<th scope="row" key="0">${lead?.(row)}${first(row)}</th>`
                : html`<td key=${at} class=${right[at] ? "right" : ""}><${Cell} cell=${row.cells[at]} unit=${column.unit} /></td>`,
            )}
          </tr>`,
        )}
      </tbody>
    </table>
    ${rows.length === 0 && html`<p class="dim">nothing here</p>`}
  </div>`;
}

export function Pager({ from, shown, total, more, onMove }) {
  if (from === 0 && !more) return null;
  const of = total === null || total === undefined ? "" : ` of ${total.toLocaleString("en")}`;
  return html`<div class="pager">
    <button disabled=${from === 0} onClick=${() => onMove(0)}>First</button>
    <button disabled=${from === 0} onClick=${() => onMove(Math.max(0, from - SCREEN))}>Back</button>
    <span>${(from + 1).toLocaleString("en")}–${(from + shown).toLocaleString("en")}${of}</span>
    <button disabled=${!more} onClick=${() => onMove(from + SCREEN)}>Next</button>
  </div>`;
}
