// Actions: a form for the parameters, and a confirmation before destructive actions.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { act } from "./api.js";

// A dialog that is open while it is rendered.
export function Dialog({ title, onClose, children }) {
  const dialog = useRef();
  useEffect(() => dialog.current.showModal(), []);
  return html`<dialog ref=${dialog} onClose=${onClose} aria-label=${title}>
    <header><h3>${title}</h3><button type="button" aria-label="close" onClick=${() => dialog.current.close()}>✕</button></header>
    ${children}
  </dialog>`;
}

export function Field({ parameter, value, onChange }) {
  const { kind, of } = parameter.kind;
  const set = (event) => onChange(event.target.value);
  const name = html`<span>${parameter.title}${parameter.required === false && html` <span class="dim">(optional)</span>`}</span>`;
  if (kind === "flag") {
    return html`<label class="flag"><input type="checkbox" checked=${value === true} onChange=${(event) => onChange(event.target.checked)} />${name}</label>`;
  }
  if (kind === "choice") {
    return html`<label>${name}<select name=${parameter.name} required=${parameter.required} value=${value ?? ""} onChange=${set}>
      <option value="">${parameter.now ?? "…"}</option>
      ${of.map((choice) => html`<option value=${choice.value}>${choice.title}</option>`)}
    </select></label>`;
  }
  const numeric = kind === "whole" || kind === "number";
  return html`<label>${name}<input name=${parameter.name} type=${numeric ? "number" : "text"} step=${kind === "whole" ? 1 : "any"} required=${parameter.required} placeholder=${parameter.now ?? ""} value=${value ?? ""} onInput=${set} /></label>`;
}

// Converts form values for the API: numbers as numbers, empty fields as absent.
export function meant(parameters, values) {
  const entries = parameters.map((parameter) => {
    const value = values[parameter.name];
    const numeric = ["whole", "number"].includes(parameter.kind.kind);
    return [parameter.name, numeric && value !== "" && value !== undefined ? Number(value) : value];
  });
  return Object.fromEntries(entries.filter(([, value]) => value !== undefined && value !== ""));
}

// `given` has the arguments that are already known, such as the row.
export function Action({ panel, action, given = {}, tell }) {
  const [asking, setAsking] = useState(false);
  const open = action.parameters.filter((parameter) => !(parameter.name in given));
  const run = async (values) => {
    try {
      const done = await act(panel, action.name, { ...given, ...values });
      tell(done.message);
    } catch (error) {
      tell(`${action.title}: ${error.message}`, true);
    }
    setAsking(false);
  };
  const begin = () => (action.destructive || open.length ? setAsking(true) : run({}));
  return html`<span>
    <button class=${action.destructive ? "danger" : ""} title=${action.doc} onClick=${begin}>${action.title}${action.destructive || open.length ? " …" : ""}</button>
    ${asking && html`<${Ask} action=${action} given=${given} open=${open} run=${run} onClose=${() => setAsking(false)} />`}
  </span>`;
}

function Ask({ action, given, open, run, onClose }) {
  const [values, setValues] = useState({});
  const submit = (event) => {
    event.preventDefault();
    run(meant(open, values));
  };
  const about = Object.values(given).join(", ");
  return html`<${Dialog} title=${action.title} onClose=${onClose}>
    <form class=${open.length > 4 ? "many" : ""} onSubmit=${submit}>
      <p>${action.doc}</p>
      ${about && html`<p><b>${about}</b></p>`}
      ${open.map((parameter) => html`<${Field} key=${parameter.name} parameter=${parameter} value=${values[parameter.name]} onChange=${(value) => setValues({ ...values, [parameter.name]: value })} />`)}
      ${action.destructive && html`<p class="warning">▲ This loses or stops something, and is written to the log.</p>`}
      <footer><button type="button" onClick=${onClose}>Leave it</button><button class=${action.destructive ? "danger" : "primary"}>${action.destructive ? `Yes: ${action.title}` : action.title}</button></footer>
    </form>
  </${Dialog}>`;
}
