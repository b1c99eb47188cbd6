// One application, with its widgets in the order it gives.

import { html, useState } from "./vendor/preact-htm.js";
import { Action } from "./action.js";
import { Chart } from "./chart.js";
import { Details, takesRow } from "./details.js";
import { Health } from "./format.js";
import { Heat } from "./heat.js";
import { WhatIf, Why } from "./questions.js";
import { Rounds } from "./rounds.js";
import { Table } from "./table.js";
import { Tree } from "./tree.js";

function Rowed({ kind, panel, widget, tell }) {
  const [row, setRow] = useState(null);
  const more = panel.explains || panel.actions.some((action) => takesRow(action, widget.id));
  const Kind = kind === "table" ? Table : Tree;
  return html`<div>
    <${Kind} panel=${panel.name} widget=${widget.id} title=${widget.title} body=${widget.body} open=${more ? setRow : null} />
    ${row && html`<${Details} panel=${panel} widget=${widget} row=${row} columns=${widget.body.columns} tell=${tell} onClose=${() => setRow(null)} />`}
  </div>`;
}

function Body({ panel, widget, view, tell }) {
  const { body } = widget;
  switch (body.kind) {
    case "series":
      return html`<${Chart} ...${view} panel=${panel.name} widget=${widget.id} series=${body} points=${view.points[panel.name]?.[widget.id]} />`;
    case "table":
    case "tree":
      return html`<${Rowed} kind=${body.kind} panel=${panel} widget=${widget} tell=${tell} />`;
    case "rounds":
      return html`<${Rounds} body=${body} title=${widget.title} />`;
    case "heat_map":
      return html`<${Heat} body=${body} title=${widget.title} />`;
    case "action": {
      const action = panel.actions.find((known) => known.name === body.action);
      return action ? html`<p>${action.doc}</p><${Action} panel=${panel.name} action=${action} tell=${tell} />` : html`<p class="problem">the action ${body.action} is not there</p>`;
    }
    default:
      return html`<p class="dim">this page cannot draw "${body.kind}" yet</p>`;
  }
}

// Widgets that need the full width.
const wide = ({ kind, columns }) => kind === "rounds" || (columns ?? []).length > 5;

export function Panel({ panel, view, tell }) {
  const { snapshot, actions } = panel;
  const placed = new Set(snapshot.widgets.map((widget) => widget.body.action).filter(Boolean));
  const free = actions.filter((action) => !placed.has(action.name) && !action.parameters.some((parameter) => parameter.kind.kind === "row"));
  return html`<main>
    <header class="title">
      <h2>${snapshot.title}</h2>
      <${Health} health=${snapshot.health} />
      <span class="actions">${free.map((action) => html`<${Action} key=${action.name} panel=${panel.name} action=${action} tell=${tell} />`)}</span>
    </header>
    <div class="grid">
      ${snapshot.widgets.map((widget) => html`<section key=${widget.id} class="card ${wide(widget.body) ? "wide" : ""}" data-widget=${widget.id}><h3>${widget.title}</h3><${Body} panel=${panel} widget=${widget} view=${view} tell=${tell} /></section>`)}
      ${panel.explains && html`<${Why} panel=${panel} />`}
      ${(panel.settings ?? []).length > 0 && html`<${WhatIf} panel=${panel} />`}
    </div>
  </main>`;
}
