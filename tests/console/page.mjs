// The console as a person sees it, compared with the API.

import assert from "node:assert/strict";
import { address, api, browser, inked, open, quiet, shots, until } from "./browser.mjs";

const checks = {
  async "the address does not keep the token, and the page is alive"(page) {
    assert.ok(!page.url().includes("token"), page.url());
    assert.equal(await page.locator(".glance").count(), 2);
  },

  async "numbers on the page are the API's"(page) {
    const { panels } = await api("/admin/panels");
    const engine = panels.find((panel) => panel.name === "engine").snapshot.widgets[0].body.lines;
    const shown = await page.locator('[data-panel="engine"] dd data').evaluateAll((all) => all.map((each) => Number(each.value)));
    assert.deepEqual(shown, engine.map((line) => line.value));
  },

  async "charts are drawn"(page) {
    await page.goto(`${address.origin}/#/waterworks`);
    const canvas = '[data-widget="load"] canvas';
    await page.locator(canvas).waitFor();
    await until("the chart has lines", async () => (await inked(page, canvas)) > 20);
    const told = await api("/admin/panels/waterworks/history/load?span=10m");
    assert.ok(told.times.length >= 2 && told.lines.length === 5, JSON.stringify(told).slice(0, 300));
  },

  async "tables are paged, sorted, and hold to the API"(page) {
    const table = page.locator('[data-widget="canals"]');
    assert.equal(await table.locator("tbody tr").count(), 25);
    await table.getByRole("button", { name: "yield" }).click();
    await table.getByRole("button", { name: "yield" }).click();
    let all = [];
    let next = "0";
    while (next) {
      const page = await api(`/admin/panels/waterworks/page/canals?cursor=${next}`);
      all = all.concat(page.rows);
      next = page.next;
    }
    const most = Math.max(...all.map((row) => row.cells[3]));
    await until("the highest yield is first", async () => Number(await table.locator("tbody tr").first().locator("td data").nth(1).getAttribute("value")) === most);
    await table.getByRole("button", { name: "Next" }).click();
    await table.getByText("26–50 of 1,000").waitFor();
  },

  async "a tree of ten million opens a folder at a time"(page) {
    const tree = page.locator('[data-widget="plan"]');
    await tree.getByRole("button", { name: "what is in plan/001", exact: true }).click();
    await tree.getByRole("button", { name: "what is in plan/001/000", exact: true }).click();
    await tree.getByText("1–25 of").waitFor();
    await until("two folders are open", async () => (await tree.locator('[aria-expanded="true"]').count()) === 2);
    assert.equal(await tree.locator("tbody tr").count(), 25);
  },

  async "a row says why, and can be acted on after a question"(page) {
    const table = page.locator('[data-widget="canals"]');
    await table.getByRole("button", { name: "First" }).click();
    const name = await table.locator("tbody th button").first().innerText();
    await table.locator("tbody th button").first().click();
    const dialog = page.locator("dialog").first();
    await dialog.getByText("waits for the gate above it").waitFor();
    await dialog.getByRole("button", { name: "Shut …" }).click();
    await page.getByRole("button", { name: "Yes: Shut" }).click();
    await page.getByText(`shut ${name.replace(" ", "-")}`).waitFor();
    await page.keyboard.press("Escape");
    await table.getByText("shut by hand").first().waitFor();
  },

  async "an action takes its arguments"(page) {
    await page.getByRole("button", { name: "Open gates …" }).click();
    await page.locator('dialog input[name="gates"]').fill("3");
    await page.keyboard.press("Enter");
    await page.getByText("opened 3 gates").waitFor();
    await until("the gates are open", async () => {
      const { panels } = await api("/admin/panels");
      return panels[0].snapshot.widgets[0].body.lines[4].value === 4;
    });
  },

  async "a destructive action asks, and does nothing when told to leave it"(page) {
    await page.getByRole("button", { name: "Flood …" }).click();
    await page.getByRole("button", { name: "Leave it" }).click();
    assert.equal((await api("/admin/panels/waterworks")).snapshot.health.state, "warning");
    await page.getByRole("button", { name: "Flood …" }).click();
    await page.getByRole("button", { name: "Yes: Flood" }).click();
    await page.getByText("does not work: flooded").waitFor();
  },

  async "questions are answered"(page) {
    await page.locator('input[name="subject"]').fill("canal-7");
    await page.getByRole("button", { name: "Explain", exact: true }).click();
    await page.getByText("canal-7 waits for the gate above it").waitFor();
    await page.locator('input[name="pumps"]').fill("3");
    await page.getByRole("button", { name: "Ask" }).click();
    await page.getByText("with 3 pumps").waitFor();
    assert.equal(await page.locator('.answer data[value="150"]').count(), 1);
  },

  async "the keyboard reaches what the mouse reaches"(page) {
    await page.goto(`${address.origin}/#/`);
    await page.locator('[data-panel="engine"] a').focus();
    await page.keyboard.press("Enter");
    await page.locator('[data-widget="classes"]').waitFor();
  },

  async "the page stays light"(page) {
    await page.goto(`${address.origin}/#/waterworks`);
    await page.locator('[data-widget="plan"] tbody tr').first().waitFor();
    const nodes = await page.evaluate(() => document.querySelectorAll("*").length);
    const tasks = await page.evaluate(() => window.longTasks);
    assert.ok(nodes < 5000, `${nodes} nodes`);
    // Other programs slow a browser down, so times count only on a dedicated machine.
    if (process.env.BOUNDS) assert.ok(Math.max(0, ...tasks) <= 100, `tasks of ${tasks.map(Math.round).join(", ")} ms`);
    console.log(`  ${nodes} nodes, longest task ${Math.round(Math.max(0, ...tasks))} ms`);
  },

  async "another origin cannot act, and nothing is shown without the token"() {
    for (const path of ["/", "/console/app.js", "/admin/feed", "/admin/panels", "/admin/openapi.json"]) {
      assert.equal((await fetch(new URL(path, address))).status, 401, path);
    }
    const page = await (await browser.newContext()).newPage();
    await page.goto(address.href);
    const [cookie] = await page.context().cookies(address.origin);
    const act = (headers) => fetch(new URL("/admin/panels/waterworks/act/open", address), { method: "POST", body: '{"gates":1}', headers: { cookie: `${cookie.name}=${cookie.value}`, ...headers } });
    assert.equal((await act({})).status, 403);
    assert.equal((await act({ "x-headworks": "1", "sec-fetch-site": "same-site" })).status, 403);
    assert.equal((await act({ "x-headworks": "1", "sec-fetch-site": "same-origin" })).status, 200);
  },
};

try {
  const page = await open({ width: 1440, height: 900 }, "light");
  for (const [name, check] of Object.entries(checks)) {
    await check(page);
    console.log(`ok ${name}`);
  }
  for (const [size, viewport] of Object.entries({ phone: { width: 390, height: 844 }, desktop: { width: 1440, height: 900 } })) {
    for (const scheme of ["light", "dark"]) {
      const each = await open(viewport, scheme);
      for (const view of ["overview", "waterworks", "engine"]) {
        await each.goto(`${address.origin}/#/${view === "overview" ? "" : view}`);
        await until("the chart is drawn", async () => (await each.locator("canvas").count()) > 0 && (await inked(each, "canvas")) > 3);
        const sideways = await each.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(sideways <= 0, `${view} at ${size} is ${sideways} px too wide`);
        await each.screenshot({ path: `${shots}/${view}-${size}-${scheme}.png`, fullPage: true });
      }
      await each.context().close();
    }
  }
  quiet();
} finally {
  await browser.close();
}
