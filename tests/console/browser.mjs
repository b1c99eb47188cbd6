// A browser that records every error and every request to another host.

import assert from "node:assert/strict";
import { chromium } from "playwright-core";

export const address = new URL(process.env.ADDRESS);
export const token = address.searchParams.get("token");
export const shots = process.env.SHOTS;

export const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
export const troubles = [];
export const foreign = [];

export async function open(viewport, colorScheme) {
  const context = await browser.newContext({ viewport, colorScheme });
  const page = await context.newPage();
  page.setDefaultTimeout(20000);
  page.on("console", (said) => said.type() === "error" && troubles.push(said.text()));
  page.on("pageerror", (error) => troubles.push(String(error)));
  page.on("request", (request) => {
    const { origin, protocol } = new URL(request.url());
    if (protocol !== "data:" && origin !== address.origin) foreign.push(request.url());
  });
  await page.addInitScript(() => {
    window.longTasks = [];
    new PerformanceObserver((list) => window.longTasks.push(...list.getEntries().map((entry) => entry.duration))).observe({ type: "longtask", buffered: true });
  });
  await page.goto(address.href);
  await page.getByText("● live").waitFor();
  return page;
}

export const api = async (path) => {
  const answer = await fetch(new URL(path, address), { headers: { authorization: `Bearer ${token}` } });
  assert.equal(answer.status, 200, path);
  return answer.json();
};

// Counts the colours of a plot: an empty one has only a grid.
export const inked = (page, selector) =>
  page.locator(selector).first().evaluate((canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const colours = new Set();
    for (let at = 0; at < data.length; at += 4) if (data[at + 3] > 200) colours.add((data[at] << 16) | (data[at + 1] << 8) | data[at + 2]);
    return colours.size;
  });

export const until = async (what, holds) => {
  const end = Date.now() + 20000;
  for (;;) {
    if (await holds()) return;
    assert.ok(Date.now() < end, `never: ${what}`);
    await new Promise((done) => setTimeout(done, 100));
  }
};

// Called last: fails if an error went unnoticed.
export function quiet() {
  assert.deepEqual(troubles, [], "the browser's console has errors");
  assert.deepEqual(foreign, [], "somebody else was asked");
  console.log("ok nothing was said in the browser's console, and nobody else was asked");
}
