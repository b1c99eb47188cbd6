// The console of a real `headworks up`: an SDK, a torrent client and a migration behind it.

import assert from "node:assert/strict";
import OpenAI from "openai";
import { address, api, browser, inked, open, quiet, shots, until } from "./browser.mjs";

const REQUESTS = 40;
const client = new OpenAI({ baseURL: process.env.GATEWAY, apiKey: "any" });

async function ask() {
  const began = performance.now();
  const answer = await client.chat.completions.create({ model: "echo", messages: [{ role: "user", content: "how high is the water?" }] });
  assert.equal(answer.object, "chat.completion");
  return performance.now() - began;
}

const widget = async (panel, id) => (await api(`/admin/panels/${panel}`)).snapshot.widgets.find((each) => each.id === id).body;
const line = async (panel, id, name) => (await widget(panel, id)).lines.find((each) => each.name === name).value;
const granted = () => line("gateway", "load", "granted");

const go = async (page, view) => {
  await page.goto(`${address.origin}/#/${view}`);
  await page.locator("[data-widget]").first().waitFor();
};

const checks = {
  async "the gateway: every request that the SDK made is on the overview"(page) {
    for (let n = 0; n < REQUESTS; n += 1) await ask();
    assert.equal(await granted(), REQUESTS);
    const shown = page.locator('[data-panel="gateway"] dd data').nth(2);
    await until("the overview shows every request", async () => Number(await shown.getAttribute("value")) === REQUESTS);
  },

  async "the gateway: its last request is the API's, and is explained"(page) {
    await go(page, "gateway");
    await until("the chart has lines", async () => (await inked(page, '[data-widget="load"] canvas')) > 10);
    const first = (await widget("gateway", "requests")).page.rows[0];
    assert.equal(await page.locator('[data-widget="requests"] tbody th').first().innerText(), first.cells[0]);
    await page.locator('input[name="subject"]').fill(first.cells[0]);
    await page.getByRole("button", { name: "Explain", exact: true }).click();
    await page.getByText("did not wait").first().waitFor();
  },

  async "the gateway: weights are tried out, changed and taken back"(page) {
    const trial = page.locator("form").filter({ has: page.getByRole("button", { name: "Ask" }) });
    await trial.locator('input[name="weight_5"]').fill("99");
    await page.getByRole("button", { name: "Ask" }).click();
    await page.getByText(/replay of the last \d+ requests/).waitFor();
    const weight = async () => (await widget("gateway", "classes")).page.rows[5].cells[1];
    const before = await weight();
    await page.getByRole("button", { name: "Change settings …" }).click();
    await page.locator('dialog input[name="weight_5"]').fill("99");
    await page.keyboard.press("Enter");
    await page.getByText("applied until the next reload or restart").waitFor();
    await until("the weight is in force", async () => (await weight()) === 99);
    await page.getByRole("button", { name: "Reset to the configuration file" }).click();
    await until("the weight is what it was", async () => (await weight()) === before);
  },

  async "the tracker: a torrent client's announces are counted, and its torrent is explained"(page) {
    await go(page, "tracker");
    await until("the client has announced", async () => (await line("tracker", "size", "local peers")) > 0);
    const torrent = (await widget("tracker", "torrents")).page.rows[0];
    await page.locator('[data-widget="torrents"] tbody th').first().waitFor();
    await page.locator('input[name="subject"]').fill(torrent.id);
    await page.getByRole("button", { name: "Explain", exact: true }).click();
    await page.locator(".answer").getByText("seeder").first().waitFor();
  },

  async "the tracker: a forwarder is suspended and enabled again"(page) {
    const state = async () => (await widget("tracker", "forwarders")).page.rows[0].cells.find((cell) => cell?.state)?.state;
    const table = page.locator('[data-widget="forwarders"]');
    await table.locator("tbody th button").first().click();
    await page.locator("dialog").getByRole("button", { name: "Suspend …" }).click();
    await page.locator('dialog input[name="seconds"]').fill("600");
    await page.keyboard.press("Enter");
    await page.getByText("is suspended for").waitFor();
    await until("it is suspended", async () => (await state()) === "warning");
    await page.keyboard.press("Escape");
    await page.keyboard.press("Escape");
    await table.locator("tbody th button").first().click();
    await page.locator("dialog").getByRole("button", { name: /^Enable/ }).click();
    await page.getByText("is enabled").waitFor();
    await page.keyboard.press("Escape");
  },

  async "migrate: a job that another process ran is there, with its plan as a tree"(page) {
    await go(page, "migrate");
    const jobs = await widget("migrate", "jobs");
    assert.ok(JSON.stringify(jobs.page.rows).includes("job.db"), JSON.stringify(jobs));
    await page.locator('[data-widget="plan"] tbody th button').first().waitFor();
  },

  async "migrate: a synthetic migration is started, watched, paused and resumed"(page) {
    await page.getByRole("button", { name: /synthetic/i }).first().click();
    await page.getByText(/copying synth:.* to /).waitFor();
    await until("there are two jobs", async () => (await widget("migrate", "jobs")).page.rows.length === 2);
    await page.locator('[data-widget^="rounds"]').first().waitFor();
    await until("entries are found", async () => (await widget("migrate", "load")).lines.some((each) => each.value > 50));
    const row = page.locator('[data-widget="jobs"] tbody tr').filter({ hasText: "synthetic" });
    await row.locator("th button").click();
    await page.locator("dialog").getByRole("button", { name: "Pause …" }).click();
    await page.getByRole("button", { name: "Yes: Pause" }).click();
    const job = async () => JSON.stringify((await widget("migrate", "jobs")).page.rows.find((each) => JSON.stringify(each).includes("synthetic")));
    await until("it is paused", async () => (await job()).includes("pause"));
    await page.locator("dialog").getByRole("button", { name: /^Resume/ }).first().click();
    await until("it goes on", async () => !(await job()).includes("paused"));
    await page.keyboard.press("Escape");
  },

  async "a thousand wrong tokens do not slow the applications"() {
    const before = await granted();
    const guess = (n) => fetch(new URL("/admin/panels", address), { headers: { authorization: `Bearer guess-${n}` } }).then((answer) => answer.status);
    const guesses = Promise.all(Array.from({ length: 1000 }, (_, n) => guess(n)));
    const times = [];
    for (let n = 0; n < 20; n += 1) times.push(await ask());
    assert.ok((await guesses).every((status) => status === 401 || status === 429));
    assert.equal(await granted(), before + 20);
    console.log(`  the slowest of 20 requests beside them took ${Math.round(Math.max(...times))} ms`);
  },
};

try {
  const page = await open({ width: 1440, height: 900 }, "light");
  for (const [name, check] of Object.entries(checks)) {
    await check(page).catch(async (error) => {
      await page.screenshot({ path: `${shots}/failed.png`, fullPage: true });
      throw error;
    });
    console.log(`ok ${name}`);
  }
  for (const [size, viewport] of Object.entries({ phone: { width: 390, height: 844 }, desktop: { width: 1440, height: 900 } })) {
    for (const scheme of ["light", "dark"]) {
      const each = await open(viewport, scheme);
      for (const view of ["", "gateway", "tracker", "migrate", "gateway-engine"]) {
        await each.goto(`${address.origin}/#/${view}`);
        await until("the chart is drawn", async () => (await each.locator("canvas").count()) > 0 && (await inked(each, "canvas")) > 3);
        const sideways = await each.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(sideways <= 0, `${view} at ${size} is ${sideways} px too wide`);
        await each.screenshot({ path: `${shots}/up-${view || "overview"}-${size}-${scheme}.png`, fullPage: true });
      }
      await each.context().close();
    }
  }
  quiet();
} finally {
  await browser.close();
}
