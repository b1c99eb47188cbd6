// The overview: health and first series of every application.

import { html } from "./vendor/preact-htm.js";
import { Chart, Swatch, Value } from "./chart.js";
import { Health } from "./format.js";

function Glance({ panel, view }) {
  const { snapshot, name } = panel;
  const widget = snapshot.widgets.find((known) => known.body.kind === "series");
  const points = widget && view.points[name]?.[widget.id];
  return html`<section class="card glance" data-panel=${name}>
    <header><h3><a href="#/${encodeURIComponent(name)}">${snapshot.title}</a></h3><${Health} health=${snapshot.health} /></header>
    ${widget && html`
      <dl class="tiles">
        ${widget.body.lines.map((line, at) => html`<div key=${line.name}><dt><${Swatch} at=${at} />${line.name}</dt><dd><${Value} line=${line} unit=${widget.body.unit} point=${points?.[at]} /></dd></div>`)}
      </dl>
      <${Chart} ...${view} panel=${name} widget=${widget.id} series=${widget.body} points=${points} mini=${true} />
    `}
    ${!widget && html`<p class="dim">it shows no series</p>`}
  </section>`;
}

export function Overview({ panels, view }) {
  if (panels.length === 0) {
    return html`<main><h2>Nothing runs yet</h2><p>No application has a panel. <code>headworks up</code> starts every application there is; its first lines say which did not start, and why.</p></main>`;
  }
  return html`<main>
    <header class="title"><h2>Overview</h2></header>
    <div class="grid">${panels.map((panel) => html`<${Glance} key=${panel.name} panel=${panel} view=${view} />`)}</div>
  </main>`;
}
