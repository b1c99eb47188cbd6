// A table. Its first page comes with every snapshot; further pages are fetched on demand.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { page } from "./api.js";
import { rank } from "./format.js";
import { Pager, Rows, SCREEN } from "./rows.js";

// Maximum number of rows fetched for sorting in the browser.
const SORTED = 5000;
const REFRESH = 5000;

// The first `wanted` rows, following cursors from the first page.
async function fetchRows(panel, widget, first, wanted) {
  let rows = first.rows;
  let next = first.next;
  while (next && rows.length < wanted) {
    const more = await page(panel, widget, next);
    rows = rows.concat(more.rows);
    next = more.next;
  }
  return { rows, next };
}

function sorted(rows, sort) {
  if (!sort) return rows;
  const order = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
  const turn = sort.down ? -1 : 1;
  return [...rows].sort((a, b) => turn * order(rank(a.cells[sort.at]), rank(b.cells[sort.at])));
}

export function Table({ panel, widget, title, body, open }) {
  const [from, setFrom] = useState(0);
  const [sort, setSort] = useState(null);
  const [held, setHeld] = useState(null);
  const [problem, setProblem] = useState(null);
  const latest = useRef(body.page);
  latest.current = body.page;
  const sortable = (body.total ?? Infinity) <= SORTED || !body.page.next;
  const wanted = sort ? SORTED : from + SCREEN;
  const beyond = body.page.next && wanted > body.page.rows.length;

  useEffect(() => {
    if (!beyond) return setHeld(null);
    let gone = false;
    const load = () =>
      fetchRows(panel, widget, latest.current, wanted)
        .then((rows) => gone || (setHeld(rows), setProblem(null)))
        .catch((error) => gone || setProblem(error.message));
    load();
    const again = setInterval(load, REFRESH);
    return () => {
      gone = true;
      clearInterval(again);
    };
  }, [panel, widget, wanted, Boolean(beyond)]);

  const all = beyond && held ? held : body.page;
  const rows = sorted(all.rows, sort).slice(from, from + SCREEN);
  const more = all.rows.length > from + SCREEN || Boolean(all.next && !sort);
  const onSort = (at) => {
    setFrom(0);
    setSort(sort?.at !== at ? { at, down: false } : sort.down ? null : { at, down: true });
  };
  return html`<div>
    <${Rows} title=${title} columns=${body.columns} rows=${rows} sort=${sort} onSort=${sortable && onSort} open=${open} />
    ${problem && html`<p class="problem">${problem}</p>`}
    <${Pager} from=${from} shown=${rows.length} total=${body.total} more=${more} onMove=${setFrom} />
  </div>`;
}
