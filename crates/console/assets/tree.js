// A tree: a folder fetches its children when it is opened. Only one screenful of rows is rendered.

import { html, useState } from "./vendor/preact-htm.js";
import { page } from "./api.js";
import { Pager, Rows, SCREEN } from "./rows.js";

// The visible rows in drawing order. `opened` has the pages of each open row.
function flatten(rows, next, depth, opened, parent) {
  const flat = rows.flatMap((row) => {
    const below = opened.get(row.id);
    const self = { ...row, depth, opened: Boolean(below) };
    return below ? [self, ...flatten(below.rows, below.next, depth + 1, opened, row.id)] : [self];
  });
  return next ? [...flat, { id: `${parent} more`, cells: ["more …"], depth, more: { parent, next } }] : flat;
}

export function Tree({ panel, widget, title, body, open }) {
  const [opened, setOpened] = useState(new Map());
  const [from, setFrom] = useState(0);
  const [problem, setProblem] = useState(null);
  const keep = (id, pages) => setOpened((now) => new Map(now).set(id, pages));
  const fetched = (promise) => promise.then(() => setProblem(null)).catch((error) => setProblem(error.message));

  const toggle = (row) => {
    if (!row.opened) return fetched(page(panel, widget, row.children).then((below) => keep(row.id, below)));
    setOpened((now) => {
      const rest = new Map(now);
      rest.delete(row.id);
      return rest;
    });
  };
  const root = opened.get("") ?? body.page;
  const more = ({ parent, next }) => {
    const before = parent === "" ? root : opened.get(parent);
    return fetched(page(panel, widget, next).then((rest) => keep(parent, { rows: before.rows.concat(rest.rows), next: rest.next })));
  };
  const lead = (row) => {
    const indent = html`<span class="indent" style=${{ width: `${row.depth * 1.1}rem` }}></span>`;
    if (row.more) return html`${indent}<button onClick=${() => more(row.more)}>more</button>`;
    if (!row.children) return html`${indent}<span class="arrow"></span>`;
    return html`${indent}<button class="arrow" aria-expanded=${row.opened} aria-label="what is in ${row.id}" onClick=${() => toggle(row)}>${row.opened ? "▾" : "▸"}</button>`;
  };
  const flat = flatten(root.rows, root.next, 0, opened, "");
  const rows = flat.slice(from, from + SCREEN).map((row) => (row.more ? { ...row, cells: [""] } : row));
  return html`<div>
    <${Rows} title=${title} columns=${body.columns} rows=${rows} lead=${lead} open=${open && ((row) => !row.more && open(row))} />
    ${problem && html`<p class="problem">${problem}</p>`}
    <${Pager} from=${from} shown=${rows.length} total=${flat.length} more=${flat.length > from + SCREEN} onMove=${setFrom} />
  </div>`;
}
