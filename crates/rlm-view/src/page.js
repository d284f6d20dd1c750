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
    // A part that is the same stays, so that a click is not lost between press and release.
    if (!fresh || fresh.isEqualNode(old)) return;
    const typed = new Map([...old.querySelectorAll(FIELDS)].map((field) => [identity(field), field.value]));
    for (const field of fresh.querySelectorAll(FIELDS)) {
      const before = typed.get(identity(field));
      if (before !== undefined) field.value = before;
    }
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    const id = focused && identity(focused);
    const selection = focused && "selectionStart" in focused ? [focused.selectionStart, focused.selectionEnd] : null;
    if (old.open) fresh.open = true;
    old.replaceWith(fresh);
    if (!focused) return;
    // The focus never moves to another control: the next key could press it.
    const same = [fresh, ...fresh.querySelectorAll("*")].find((it) => it.tagName === focused.tagName && identity(it) === id);
    same?.focus({ preventScroll: true });
    if (same && selection) try { same.setSelectionRange(...selection); } catch { /* not a text field */ }
  }

  const FIELDS = "input:not([type=hidden]), textarea";

  // Identifies a control of a form, a link or a summary, also after its part was replaced.
  function identity(control) {
    const form = control.form;
    const value = control.tagName === "BUTTON" ? control.value : "";
    const parts = [form?.getAttribute("action"), form?.querySelector("[name=id]")?.value, control.name, value, control.getAttribute("href"), control.id];
    return control.tagName + JSON.stringify(parts);
  }

  function showParts(parts, order) {
    for (const [id, html] of Object.entries(parts ?? {})) {
      const old = byId(id);
      if (old) replace(old, html);
    }
    const rows = byId("rows");
    if (order && rows) {
      const known = new Map([...rows.children].map((row) => [row.id, row]));
      // Removed first, so that the rows after them need no move, which would take the focus from their fields.
      const gone = new Set(order);
      known.forEach((row, id) => { if (!gone.has(id)) row.remove(); });
      order.forEach((id, at) => {
        const row = known.get(id) ?? (parts?.[id] && rowElement(rows, parts[id]));
        if (row && rows.children[at] !== row) rows.insertBefore(row, rows.children[at] ?? null);
      });
    } else
    // A list that was empty when the page was loaded has no table yet.
     if (order?.length && topic.startsWith("list:")) {
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
  // The attempt and the position of the first record on the page.
  const first = records && { attempt: records.dataset.attempt, from: Number(records.dataset.from) };

  async function load(attempt, query) {
    const response = await fetch(`/runs/${run()}/records?attempt=${attempt}&${query}`);
    if (!response.ok) throw new Error(`${response.status}`);
    return response.json();
  }

  function append(html) {
    const template = document.createElement("template");
    template.innerHTML = html;
    for (const record of [...template.content.children]) {
      record.dataset.attempt = records.dataset.attempt;
      if (record.classList.contains("message")) {
        // The message repeats the text that was streamed before it.
        while (records.lastElementChild?.classList.contains("text")) records.lastElementChild.remove();
      }
      records.append(record);
    }
    if (isAtEnd || records.childElementCount > 3 * MAX_RECORDS) {
      let surplus = records.childElementCount - MAX_RECORDS;
      while (surplus-- > 0 || (records.childElementCount > MAX_RECORDS && !records.firstElementChild.dataset.at)) {
        records.firstElementChild.remove();
        byId("earlier").hidden = false;
      }
      const top = [...records.children].find((record) => record.dataset.at);
      if (top && !byId("earlier").hidden) Object.assign(first, { attempt: top.dataset.attempt ?? first.attempt, from: Number(top.dataset.at) });
    }
    if (isAtEnd) {
      records.scrollTop = records.scrollHeight;
    } else {
      byId("newest").hidden = false;
    }
  }

  // Appends the records up to a position that the page doesn't have yet.
  async function catchUp(to) {
    while (position() < to) {
      const more = await load(records.dataset.attempt, `after=${position()}`);
      if (more.to <= position()) return;
      append(more.html);
      records.dataset.to = more.to;
    }
  }

  async function showRecords(message) {
    if (message.attempt !== records.dataset.attempt) {
      await catchUp(Infinity);
      const [iteration, attempt] = message.attempt.split("-");
      const name = `Iteration ${iteration}` + (attempt === "1" ? "" : `, attempt ${attempt}`);
      append(`<div class="rec end">${name}</div>`);
      records.dataset.attempt = message.attempt;
      records.dataset.to = 0;
      byId("attempt").textContent = name;
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
        const before = await load(first.attempt, `before=${first.from}`);
        const height = records.scrollHeight;
        const template = document.createElement("template");
        template.innerHTML = before.html;
        if (records.querySelector(".rec[data-at]")?.classList.contains("message")) {
          while (template.content.lastElementChild?.classList.contains("text")) template.content.lastElementChild.remove();
        }
        for (const record of template.content.children) record.dataset.attempt = first.attempt;
        records.prepend(template.content);
        first.from = before.from;
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
    const sent = new Map([...form.querySelectorAll(FIELDS)].map((field) => [field, field.value]));
    fields.set("action", action);
    if (confirmed) fields.set("confirmed", "yes");
    const response = await fetch(form.getAttribute("action"), { method: "POST", body: fields, headers: { accept: "application/json" } });
    if (!response.headers.get("content-type")?.includes("json")) {
      const texts = { 401: "The page is not logged in any more. Open it with: rlm view", 403: "This page may only read.", 404: "The run was removed.", 413: "The message is too long." };
      toast(texts[response.status] ?? `The server answers with an error (${response.status}).`, true);
      return;
    }
    const { result, text } = await response.json();
    if (result === "confirm") {
      if (await confirmed_by_person(text)) await send(form, action, true);
      return;
    }
    toast(text, result !== "done");
    // A rejected message stays in its field.
    if (result === "done") sent.forEach((value, field) => { if (field.value === value) field.value = ""; });
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
        button.autofocus = value === "no";
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
    } else if (isField || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog")) {
      if (event.key === "Escape") event.target.blur();
    } else if (event.key === "/") {
      const field = document.querySelector("input[type=search], #steer-text");
      if (field) { event.preventDefault(); field.focus(); }
    } else if (event.key === "j" || event.key === "k") {
      const links = [...document.querySelectorAll("#rows a")];
      const here = links.indexOf(document.activeElement);
      links[Math.min(Math.max(here + (event.key === "j" ? 1 : -1), 0), links.length - 1)]?.focus();
    } else if (event.key === "g" || event.key === "i") {
      // A message that was typed and not sent must not be lost.
      if ([...document.querySelectorAll("textarea, form:not(.filter) input:not([type=hidden])")].some((field) => field.value)) return;
      location.href = event.key === "g" ? "/" : "/inbox";
    }
  });

  for (const radio of document.querySelectorAll(".filter input[type=radio]")) {
    radio.addEventListener("change", () => radio.form.requestSubmit());
  }

  // ---- The connection. All tabs share one stream, since a browser opens only six connections to a server.

  function received(message) {
    if (message.topic !== null && message.topic !== topic) return;
    if (message.parts) showParts(message.parts, message.order);
    if (message.parts?.waiting) showWaiting();
    // The first transcript of a run has no place on a page that was loaded before it.
    if (message.records && !records) location.reload();
    if (message.records && records && records.dataset.follow !== undefined && records.dataset.follow !== "false") {
      queue = queue.then(() => showRecords(message.records)).catch(() => {});
    }
  }

  // A tab in the background shows how many runs wait.
  const title = document.title;
  function showWaiting() {
    const waiting = byId("waiting");
    document.title = waiting.hidden ? title : `(${waiting.textContent}) ${title}`;
  }
  showWaiting();

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
      setInterval(() => worker.port.postMessage({ ping: topic }), 20000);
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
