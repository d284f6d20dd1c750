// One stream of changes for all tabs of a browser.
"use strict";
const tabs = new Map();
let source = null;
let timer = 0;
let state = "open";

function tell(data) {
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
    source.onmessage = ({ data }) => tell({ message: JSON.parse(data) });
    source.onopen = () => { state = "open"; tell({ state }); };
    source.onerror = () => {
      state = "lost";
      tell({ state });
      // The browser doesn't connect again after an answer that is not a stream.
      if (source.readyState === EventSource.CLOSED) timer = setTimeout(reopen, 2000);
    };
    source.addEventListener("end", () => { source.close(); state = "end"; tell({ state }); });
  }, 20);
}

onconnect = ({ ports: [port] }) => {
  port.onmessage = ({ data }) => {
    if (data.open) tabs.set(port, data.open);
    if (data.close) tabs.delete(port);
    reopen();
  };
};
