// The console of a real `headworks up`, with real requests behind it.

import assert from "node:assert/strict";
import { address, api, browser, inked, open, quiet, shots, until } from "./browser.mjs";

const gateway = process.env.GATEWAY;
const REQUESTS = 40;

async function ask() {
  const began = performance.now();
  const body = JSON.stringify({ model: "echo", messages: [{ role: "user", content: "how high is the water?" }] });
  const headers = { "content-type": "application/json", authorization: "Bearer any" };
  const answer = await fetch(`${gateway}/chat/completions`, { method: "POST", headers, body });
  assert.equal(answer.status, 200, await answer.text());
  return performance.now() - began;
}

const granted = async () => {
  const panel = await api("/admin/panels/gateway");
  return panel.snapshot.widgets[0].body.lines.find((line) => line.name === "granted").value;
};

try {
  const page = await open({ width: 1440, height: 900 }, "dark");
  for (let n = 0; n < REQUESTS; n += 1) await ask();
  assert.equal(await granted(), REQUESTS);
  const shown = page.locator('[data-panel="gateway"] dd data').nth(2);
  await until("the overview shows every request", async () => Number(await shown.getAttribute("value")) === REQUESTS);
  console.log("ok the page shows the requests that the gateway granted");

  await page.goto(`${address.origin}/#/gateway`);
  await page.locator('[data-widget="requests"] tbody tr').first().waitFor();
  await until("the chart has lines", async () => (await inked(page, '[data-widget="load"] canvas')) > 10);
  const first = (await api("/admin/panels/gateway")).snapshot.widgets.find((widget) => widget.id === "requests").body.page.rows[0];
  assert.equal(await page.locator('[data-widget="requests"] tbody th').first().innerText(), first.cells[0]);
  console.log("ok its last request is the API's");
  await page.screenshot({ path: `${shots}/gateway-desktop-dark.png`, fullPage: true });

  const guess = (n) => fetch(new URL("/admin/panels", address), { headers: { authorization: `Bearer guess-${n}` } }).then((answer) => answer.status);
  const guesses = Promise.all(Array.from({ length: 1000 }, (_, n) => guess(n)));
  const times = [];
  for (let n = 0; n < 20; n += 1) times.push(await ask());
  assert.ok((await guesses).every((status) => status === 401 || status === 429));
  assert.ok(Math.max(...times) < 1000, `a request took ${Math.max(...times)} ms`);
  assert.equal(await granted(), REQUESTS + 20);
  console.log(`ok a thousand wrong tokens: the slowest of 20 requests beside them took ${Math.round(Math.max(...times))} ms`);
  quiet();
} finally {
  await browser.close();
}
