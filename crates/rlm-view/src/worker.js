// One stream of changes for all tabs of a browser.
"use strict";
const tabs = new Map();
let source = null;
let timer = 0;
let state = "open";

function broadcast(data) {
  for (const port of tabs.keys()) port.postMessage(data);
}

// Opens the stream again after a short time, so that several tabs that open together cause one request.
function reopen() {
  clearTimeout(timer);
  timer = setTimeout(() => {
    source?.close();
    source = null;
    const topics = [...new Set(tabs.values())];
    if (!topics.length) return;
    const query = topics.map((topic) => `topic=${encodeURIComponent(topic)}`).join("&");
    source = new EventSource(`/events?${query}`);
    source.onmessage = ({ data }) => broadcast({ message: JSON.parse(data) });
    source.onopen = () => { state = "open"; broadcast({ state }); };
    source.onerror = () => {
      state = "lost";
      broadcast({ state });
      // The browser doesn't connect again after an answer that is not a stream.
      if (source.readyState === EventSource.CLOSED) timer = setTimeout(reopen, 2000);
    };
    source.addEventListener("end", () => { source.close(); state = "end"; broadcast({ state }); });
  }, 20);
}

const seen = new Map();
const SILENT = 60000;

onconnect = ({ ports: [port] }) => {
  port.onmessage = ({ data }) => {
    seen.set(port, Date.now());
    if (data.ping && tabs.has(port)) return;
    if (data.close) tabs.delete(port);
    else tabs.set(port, data.open ?? data.ping);
    reopen();
  };
};

// A tab that crashed sends no `close`.
setInterval(() => {
  const before = tabs.size;
  for (const port of tabs.keys()) if (Date.now() - seen.get(port) > SILENT) tabs.delete(port);
  if (tabs.size < before) reopen();
}, 20000);
