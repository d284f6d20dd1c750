// Keeps an open page up to date. Everything works without this script; then a reload shows the newest state.
"use strict";
(() => {
  const meta = (name) => document.querySelector(`meta[name="${name}"]`)?.content ?? "";
  const byId = (id) => document.getElementById(id);
  const topic = meta("topic");

  // ---- Parts: the newest HTML replaces the older one.

  function element(html) {
    const template = document.createElement("template");
    template.innerHTML = html.trim();
    return template.content.firstElementChild;
  }

  // Keeps what a person typed, opened or focused in a part.
  function replace(old, html) {
    const fresh = element(html);
    if (!fresh) return;
    const typed = [...old.querySelectorAll("input:not([type=hidden]), textarea")];
    for (const field of fresh.querySelectorAll("input:not([type=hidden]), textarea")) {
      const before = typed.find((it) => it.name === field.name && it.form?.querySelector("[name=id]")?.value === field.form?.querySelector("[name=id]")?.value);
      if (before) field.value = before.value;
    }
    const focused = document.activeElement;
    const hadFocus = focused && old.contains(focused);
    const name = hadFocus ? focused.name : "";
    const value = hadFocus ? focused.value : "";
    const selection = hadFocus && "selectionStart" in focused ? [focused.selectionStart, focused.selectionEnd] : null;
    if (old.open) fresh.open = true;
    old.replaceWith(fresh);
    if (hadFocus) {
      const same = [...fresh.querySelectorAll("input, textarea, button, a")].filter((it) => it.name === name);
      const next = same.find((it) => it.value === value) ?? same[0];
      next?.focus({ preventScroll: true });
      if (next && selection) try { next.setSelectionRange(...selection); } catch { /* not a text field */ }
    }
  }

  function showParts(parts, order) {
    for (const [id, html] of Object.entries(parts ?? {})) {
      const old = byId(id);
      if (old) replace(old, html);
    }
    const rows = byId("rows");
    if (order && rows) {
      // A list that was empty when the page was loaded has no table yet.
      const known = new Map([...rows.children].map((row) => [row.id, row]));
      order.forEach((id, at) => {
        const row = known.get(id) ?? (parts?.[id] && rowElement(rows, parts[id]));
        known.delete(id);
        if (row && rows.children[at] !== row) rows.insertBefore(row, rows.children[at] ?? null);
      });
      known.forEach((row) => row.remove());
    } else if (order?.length && topic.startsWith("list:")) {
      location.reload();
    }
    showAges();
  }

  function rowElement(rows, html) {
    if (rows.tagName !== "TBODY") return element(html);
    const template = document.createElement("template");
    template.innerHTML = `<table><tbody>${html}</tbody></table>`;
    return template.content.querySelector("tr");
  }

  function showAges() {
    const now = Date.now();
    for (const time of document.querySelectorAll("time.age")) {
      const seconds = Math.max(0, Math.round((now - Date.parse(time.dateTime)) / 1000));
      time.textContent =
        seconds < 60 ? `${seconds} s`
        : seconds < 3600 ? `${Math.floor(seconds / 60)} min`
        : seconds < 86400 ? `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`
        : `${Math.floor(seconds / 86400)} d`;
    }
  }
  setInterval(showAges, 1000);
  showAges();

  // ---- The transcript: a sequence of records, each with its position.

  const records = byId("records");
  const MAX_RECORDS = 3000;
  let queue = Promise.resolve();
  let isAtEnd = true;

  const run = () => records.dataset.run;
  const position = () => Number(records.dataset.to);

  async function load(query) {
    const response = await fetch(`/runs/${run()}/records?attempt=${records.dataset.attempt}&${query}`);
    if (!response.ok) throw new Error(`${response.status}`);
    return response.json();
  }

  function append(html) {
    const template = document.createElement("template");
    template.innerHTML = html;
    for (const record of [...template.content.children]) {
      if (record.classList.contains("message")) {
        // The message repeats the text that was streamed before it.
        while (records.lastElementChild?.classList.contains("text")) records.lastElementChild.remove();
      }
      records.append(record);
    }
    if (isAtEnd) {
      let surplus = records.childElementCount - MAX_RECORDS;
      while (surplus-- > 0) {
        records.firstElementChild.remove();
        const first = records.firstElementChild?.dataset.at;
        if (first) records.dataset.from = first;
        byId("earlier").hidden = false;
      }
      records.scrollTop = records.scrollHeight;
    } else {
      byId("newest").hidden = false;
    }
  }

  // Appends the records up to a position that the page doesn't have yet.
  async function catchUp(to) {
    while (position() < to) {
      const more = await load(`after=${position()}`);
      if (more.to <= position()) return;
      append(more.html);
      records.dataset.to = more.to;
    }
  }

  async function showRecords(message) {
    if (message.attempt !== records.dataset.attempt) {
      const before = message.after;
      if (before && before.attempt === records.dataset.attempt) {
        await catchUp(before.to);
        append(`<div class="rec end">Iteration ${Number.parseInt(message.attempt, 10)}</div>`);
        records.dataset.attempt = message.attempt;
        records.dataset.to = 0;
        byId("attempt").textContent = `Iteration ${Number.parseInt(message.attempt, 10)}`;
      } else {
        location.reload();
        return;
      }
    }
    if (message.to <= position()) return;
    if (message.from === position()) {
      append(message.html);
      records.dataset.to = message.to;
    } else {
      await catchUp(message.to);
    }
  }

  if (records) {
    records.addEventListener("scroll", () => {
      isAtEnd = records.scrollHeight - records.scrollTop - records.clientHeight < 40;
      if (isAtEnd) byId("newest").hidden = true;
    });
    byId("newest").addEventListener("click", () => { records.scrollTop = records.scrollHeight; });
    byId("earlier").addEventListener("click", () => {
      queue = queue.then(async () => {
        const before = await load(`before=${records.dataset.from}`);
        const height = records.scrollHeight;
        const template = document.createElement("template");
        template.innerHTML = before.html;
        records.prepend(template.content);
        records.dataset.from = before.from;
        byId("earlier").hidden = before.from === 0;
        records.scrollTop += records.scrollHeight - height;
      }).catch(() => toast("The records can't be loaded; is the page still logged in?"));
    });
    records.scrollTop = records.scrollHeight;
  }

  // ---- Actions: a form is sent without leaving the page.

  function toast(text, isBad) {
    const place = byId("toast");
    place.textContent = text;
    place.className = isBad ? "bad" : "good";
    clearTimeout(toast.timer);
    toast.timer = setTimeout(() => { place.textContent = ""; place.className = ""; }, 8000);
  }

  async function send(form, action, confirmed) {
    const fields = new URLSearchParams(new FormData(form));
    fields.set("action", action);
    if (confirmed) fields.set("confirmed", "yes");
    const response = await fetch(form.getAttribute("action"), { method: "POST", body: fields, headers: { accept: "application/json" } });
    if (!response.headers.get("content-type")?.includes("json")) {
      toast("The page is not logged in any more. Open it with: rlm view", true);
      return;
    }
    const { result, text } = await response.json();
    if (result === "confirm") {
      if (await confirmed_by_person(text)) await send(form, action, true);
      return;
    }
    toast(text, result !== "done");
    // A rejected message stays in its field.
    if (result === "done") for (const field of form.querySelectorAll("textarea, input:not([type=hidden])")) field.value = "";
  }

  function confirmed_by_person(text) {
    return new Promise((resolve) => {
      const dialog = document.createElement("dialog");
      const question = document.createElement("p");
      question.textContent = text;
      const form = document.createElement("form");
      form.method = "dialog";
      for (const [value, label, look] of [["yes", "Yes", "danger"], ["no", "No", ""]]) {
        const button = document.createElement("button");
        button.value = value;
        button.textContent = label;
        button.className = look;
        form.append(button);
      }
      dialog.append(question, form);
      document.body.append(dialog);
      dialog.addEventListener("close", () => { dialog.remove(); resolve(dialog.returnValue === "yes"); });
      dialog.showModal();
    });
  }

  document.addEventListener("submit", (event) => {
    const form = event.target;
    const action = event.submitter?.value;
    if (!form.getAttribute("action")?.endsWith("/act") || !action) return;
    event.preventDefault();
    const button = event.submitter;
    button.disabled = true;
    send(form, action).catch(() => toast("The server doesn't respond. Is rlm view still running?", true)).finally(() => { button.disabled = false; });
  });

  document.addEventListener("keydown", (event) => {
    const isField = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
    if ((event.ctrlKey || event.metaKey) && event.key === "Enter" && event.target.id === "steer-text") {
      event.preventDefault();
      event.target.form.querySelector("button.main").click();
    } else if (isField || event.ctrlKey || event.metaKey || event.altKey) {
      if (event.key === "Escape") event.target.blur();
    } else if (event.key === "/") {
      const field = document.querySelector("input[type=search], #steer-text");
      if (field) { event.preventDefault(); field.focus(); }
    } else if (event.key === "j" || event.key === "k") {
      const links = [...document.querySelectorAll("#rows a")];
      const here = links.indexOf(document.activeElement);
      links[Math.min(Math.max(here + (event.key === "j" ? 1 : -1), 0), links.length - 1)]?.focus();
    } else if (event.key === "g") {
      location.href = "/";
    } else if (event.key === "i") {
      location.href = "/inbox";
    }
  });

  for (const radio of document.querySelectorAll(".filter input[type=radio]")) {
    radio.addEventListener("change", () => radio.form.requestSubmit());
  }

  // ---- The connection. All tabs share one stream, since a browser opens only six connections to a server.

  function received(message) {
    if (message.topic !== null && message.topic !== topic) return;
    if (message.parts) showParts(message.parts, message.order);
    if (message.records && records && records.dataset.follow !== undefined && records.dataset.follow !== "false") {
      queue = queue.then(() => showRecords(message.records)).catch(() => {});
    }
  }

  function connected(state) {
    const place = byId("connection");
    place.textContent = { open: "", lost: "Not connected. Is rlm view still running?", end: "Logged out." }[state];
    document.body.classList.toggle("lost", state !== "open");
  }

  if (topic) {
    if (window.SharedWorker) {
      const worker = new SharedWorker("/assets/worker.js", { name: "rlm-view" });
      worker.port.onmessage = ({ data }) => (data.message ? received(data.message) : connected(data.state));
      worker.port.postMessage({ open: topic });
      addEventListener("pagehide", () => worker.port.postMessage({ close: true }));
      addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
    } else {
      const source = new EventSource(`/events?topic=${encodeURIComponent(topic)}`);
      source.onmessage = ({ data }) => received(JSON.parse(data));
      source.onopen = () => connected("open");
      source.onerror = () => connected("lost");
      source.addEventListener("end", () => { source.close(); connected("end"); });
    }
  }
})();
