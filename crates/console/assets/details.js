// Details of a row: all cells, its explanation and its actions.

import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { explain } from "./api.js";
import { Action, Dialog } from "./action.js";
import { Cell } from "./format.js";

export const takesRow = (action, widget) =>
  action.parameters.find((parameter) => parameter.kind.kind === "row" && parameter.kind.of === widget);

export function Explanation({ panel, subject }) {
  const [answer, setAnswer] = useState(null);
  useEffect(() => {
    let gone = false;
    explain(panel, subject)
      .then((told) => gone || setAnswer(told))
      .catch((error) => gone || setAnswer({ summary: error.message, facts: [] }));
    return () => (gone = true);
  }, [panel, subject]);
  if (!answer) return html`<p class="dim">asking …</p>`;
  return html`<div class="answer">
    <p><b>${answer.summary}</b></p>
    <dl>${answer.facts.map((fact) => html`<dt>${fact.name}</dt><dd>${fact.value}</dd>`)}</dl>
  </div>`;
}

export function Details({ panel, widget, row, columns, tell, onClose }) {
  const actions = panel.actions.filter((action) => takesRow(action, widget.id));
  // The rows of a table can be explained if its first column has the name of the explained kind.
  const explained = panel.explains && columns[0].name === panel.explains;
  const title = typeof row.cells[0] === "string" ? row.cells[0] : row.id;
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <dl>${columns.slice(1).map((column, at) => html`<dt>${column.name}</dt><dd><${Cell} cell=${row.cells[at + 1]} unit=${column.unit} /></dd>`)}</dl>
    ${explained && html`<h4>Why?</h4><${Explanation} panel=${panel.name} subject=${row.id} />`}
    ${actions.length > 0 && html`<footer>${actions.map((action) => html`<${Action} key=${action.name} panel=${panel.name} action=${action} given=${{ [takesRow(action, widget.id).name]: row.id }} tell=${tell} />`)}</footer>`}
  </${Dialog}>`;
}
