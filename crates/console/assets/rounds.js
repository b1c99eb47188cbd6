// Two sides that proceed in rounds: the position of each, and the distance between them.

import { html } from "./vendor/preact-htm.js";

const SHOWN = 24;
const words = {
  waiting: "has not begun",
  running: "runs",
  paused: "is paused",
  held: "is held by the other side",
  stopped: "was stopped",
  completed: "is complete",
};

function Round({ round, at, current }) {
  if (!round) return html`<td class="round none"><span class="dim">·</span></td>`;
  const part = (n) => (round.declared ? (100 * n) / round.declared : 0);
  const failed = round.failed ? `, ${round.failed} failed` : "";
  const state = round.closed ? "closed" : current ? "current" : "open";
  const text = `round ${at}, ${state}: ${round.done} of ${round.declared}${failed}`;
  return html`<td class="round ${state}" title=${text} aria-label=${text}>
    <span class="bar" aria-hidden="true">
      <span class="done" style=${{ width: `${part(round.done)}%` }}></span>
      <span class="failed" style=${{ width: `${part(round.failed)}%` }}></span>
    </span>
    <span class="figures" aria-hidden="true">${round.closed ? "✓ " : ""}${round.done.toLocaleString("en")}/${round.declared.toLocaleString("en")}${round.failed ? html` <span class="bad">✕${round.failed}</span>` : ""}</span>
  </td>`;
}

export function Rounds({ body, title }) {
  const sides = [body.leader, body.follower];
  const most = Math.max(1, ...sides.map((side) => side.rounds.length));
  const first = Math.max(0, most - SHOWN);
  const numbers = Array.from({ length: most - first }, (_, n) => first + n);
  const place = (side) => side.rounds.length - 1;
  return html`<div>
    <p class="dim">
      ${sides.map((side, n) => html`${n ? "; " : ""}<b>${side.name}</b> ${words[side.state] ?? side.state}${place(side) >= 0 ? ` in round ${place(side)}` : ""}`)}.
      The follower stays ${body.lag} rounds behind; the leader may be ${body.max_lead} ahead.
    </p>
    <div class="scroll" tabindex="0" role="region" aria-label=${title}>
      <table class="rounds">
        <thead><tr><th scope="col">round</th>${numbers.map((n) => html`<th scope="col" key=${n}>${n}</th>`)}</tr></thead>
        <tbody>
          ${sides.map((side) => html`<tr key=${side.name}>
            <th scope="row">${side.name}</th>
            ${numbers.map((n) => html`<${Round} key=${n} round=${side.rounds[n]} at=${n} current=${n === place(side)} />`)}
          </tr>`)}
        </tbody>
      </table>
    </div>
  </div>`;
}
