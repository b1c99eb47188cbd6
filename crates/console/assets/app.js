// The page frame: selected panel, connection state, colour scheme and the last action.

import { html, render, useCallback, useEffect, useState } from "./vendor/preact-htm.js";
import { follow } from "./api.js";
import { Overview } from "./overview.js";
import { Panel } from "./panel.js";

const here = () => decodeURIComponent(location.hash.replace(/^#\/?/, ""));
const dark = matchMedia("(prefers-color-scheme: dark)");
const THEMES = ["auto", "light", "dark"];
const SPANS = { "10m": "10 min", "2h": "2 hours", "24h": "1 day" };

function useTheme() {
  const [theme, setTheme] = useState(localStorage.getItem("theme") ?? "auto");
  const [system, setSystem] = useState(dark.matches);
  useEffect(() => dark.addEventListener("change", () => setSystem(dark.matches)), []);
  const isDark = theme === "dark" || (theme === "auto" && system);
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  const choose = (next) => (localStorage.setItem("theme", next), setTheme(next));
  return [theme, isDark ? "dark" : "light", choose];
}

const lines = {
  connecting: "○ connecting",
  live: "● live",
  lost: "▲ lost: trying again",
  ended: "■ ended",
};

function Top({ panels, at, line, theme, onTheme, span, onSpan }) {
  const link = (name, title) => html`<a key=${name} href="#/${encodeURIComponent(name)}" aria-current=${at === name ? "page" : null}>${title}</a>`;
  return html`<header class="top">
    <button class="skip" onClick=${() => document.getElementById("main").focus()}>Skip to what is shown</button>
    <h1><img src="/console/icon.svg" alt="" width="22" height="22" /> Headworks</h1>
    <nav aria-label="applications">${link("", "Overview")}${panels.map((panel) => link(panel.name, panel.snapshot.title))}</nav>
    <span class="line ${line}" role="status">${lines[line]}</span>
    <label><span class="sr">how far back charts go</span><select name="span" value=${span} onChange=${(event) => onSpan(event.target.value)}>${Object.entries(SPANS).map(([name, title]) => html`<option value=${name}>${title}</option>`)}</select></label>
    <label><span class="sr">light or dark</span><select name="theme" value=${theme} onChange=${(event) => onTheme(event.target.value)}>${THEMES.map((name) => html`<option value=${name}>${name}</option>`)}</select></label>
  </header>`;
}

function Ended() {
  return html`<main><h2>This session has ended</h2>
    <p>Headworks was started anew. Open the address that it printed, or enter its token:</p>
    <form action="/" method="get" class="inline"><label><span>Token</span><input name="token" type="password" required /></label><button class="primary">Open</button></form>
  </main>`;
}

function App() {
  const [picture, setPicture] = useState(null);
  const [line, setLine] = useState("connecting");
  const [at, setAt] = useState(here());
  const [span, setSpan] = useState("10m");
  const [said, setSaid] = useState(null);
  const [choice, theme, choose] = useTheme();
  useEffect(() => follow(setPicture, setLine), []);
  useEffect(() => addEventListener("hashchange", () => setAt(here())), []);
  const tell = useCallback((text, bad) => setSaid({ text, bad, n: Date.now() }), []);

  const panels = picture?.panels ?? [];
  const panel = panels.find((known) => known.name === at);
  const view = { points: picture?.points ?? {}, time: picture?.time, span, theme };
  let shown;
  if (line === "ended") shown = html`<${Ended} />`;
  else if (!picture) shown = html`<main><p class="dim">connecting …</p></main>`;
  else if (panel) shown = html`<${Panel} key=${at} panel=${panel} view=${view} tell=${tell} />`;
  else shown = html`<${Overview} panels=${panels} view=${view} />`;
  return html`
    <${Top} panels=${panels} at=${panel ? at : ""} line=${line} theme=${choice} onTheme=${choose} span=${span} onSpan=${setSpan} />
    <div id="main" tabindex="-1">${shown}</div>
    <div class="toast ${said?.bad ? "bad" : ""}" role="status" aria-live="polite">${said && html`<p key=${said.n}>${said.bad ? "✕" : "✓"} ${said.text}</p><button aria-label="dismiss" onClick=${() => setSaid(null)}>✕</button>`}</div>
  `;
}

render(html`<${App} />`, document.getElementById("app"));
