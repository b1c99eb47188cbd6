// Client for the admin listener and its feed.

const path = (...parts) => parts.map(encodeURIComponent).join("/");

async function ask(address, options) {
  const answer = await fetch(address, options);
  const body = await answer.json().catch(() => ({ error: `the answer (${answer.status}) is not JSON` }));
  if (answer.ok) return body;
  const wayOut = body.way_out ? ` (${body.way_out})` : "";
  throw Object.assign(new Error(`${body.error}${wayOut}`), { status: answer.status });
}

// Pages of other origins cannot send this header (CSRF protection).
const post = (address, body) =>
  ask(address, { method: "POST", headers: { "x-headworks": "1", "content-type": "application/json" }, body: JSON.stringify(body) });

export const page = (panel, widget, cursor) =>
  ask(`/admin/panels/${path(panel, "page", widget)}?cursor=${encodeURIComponent(cursor)}`);
export const past = (panel, widget, span) => ask(`/admin/panels/${path(panel, "history", widget)}?span=${span}`);
export const explain = (panel, subject) =>
  ask(`/admin/panels/${path(panel, "explain")}/${subject.split("/").map(encodeURIComponent).join("/")}`);
export const act = (panel, action, args) => post(`/admin/panels/${path(panel, "act", action)}`, args);
export const whatIf = (panel, changes) => post(`/admin/panels/${path(panel, "what-if")}`, { changes });

// Calls `seen` with every snapshot, and `state` with the connection state: live, lost, or ended (a
// token is needed again).
export function follow(seen, state) {
  const source = new EventSource("/admin/feed");
  source.onmessage = (event) => {
    state("live");
    seen(JSON.parse(event.data));
  };
  source.onerror = () => state(source.readyState === EventSource.CLOSED ? "ended" : "lost");
}
