// Explanations and what-if questions, for panels that answer them.

import { html, useState } from "./vendor/preact-htm.js";
import { whatIf } from "./api.js";
import { Field, meant } from "./action.js";
import { Explanation } from "./details.js";
import { number } from "./format.js";

export function Why({ panel }) {
  const [text, setText] = useState("");
  const [subject, setSubject] = useState(null);
  const submit = (event) => {
    event.preventDefault();
    setSubject(text.trim());
  };
  return html`<section class="card">
    <h3>Explain ${/^[aeiou]/.test(panel.explains) ? "an" : "a"} ${panel.explains}</h3>
    <form class="inline" onSubmit=${submit}>
      <label><span>${panel.explains}</span><input name="subject" required value=${text} onInput=${(event) => setText(event.target.value)} /></label>
      <button class="primary">Explain</button>
    </form>
    ${subject && html`<${Explanation} key=${subject} panel=${panel.name} subject=${subject} />`}
  </section>`;
}

export function WhatIf({ panel }) {
  const [values, setValues] = useState({});
  const [answer, setAnswer] = useState(null);
  const optional = panel.settings.map((setting) => ({ ...setting, required: undefined }));
  const submit = async (event) => {
    event.preventDefault();
    const changes = Object.entries(meant(optional, values)).map(([key, value]) => ({ key, value }));
    setAnswer({ summary: "asking …", compared: [] });
    setAnswer(await whatIf(panel.name, changes).catch((error) => ({ summary: error.message, compared: [] })));
  };
  return html`<section class="card">
    <h3>What if?</h3>
    <p class="dim">Nothing is changed by asking.</p>
    <form class="many" onSubmit=${submit}>
      ${optional.map((setting) => html`<${Field} key=${setting.name} parameter=${setting} value=${values[setting.name]} onChange=${(value) => setValues({ ...values, [setting.name]: value })} />`)}
      <footer><button class="primary">Ask</button></footer>
    </form>
    ${answer && html`<${Compared} answer=${answer} />`}
  </section>`;
}

function Compared({ answer }) {
  return html`<div class="answer">
    <p><b>${answer.summary}</b></p>
    ${answer.compared.length > 0 && html`<div class="scroll"><table>
      <thead><tr><th scope="col"></th><th scope="col" class="right">now</th><th scope="col" class="right">then</th></tr></thead>
      <tbody>${answer.compared.map((line) => html`<tr><th scope="row">${line.name}</th><td class="right"><data value=${line.now}>${number(line.now, line.unit)}</data></td><td class="right"><data value=${line.then}>${number(line.then, line.unit)}</data></td></tr>`)}</tbody>
    </table></div>`}
  </div>`;
}
