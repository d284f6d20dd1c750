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
    const typed = new Map([...old.querySelectorAll(FIELDS)].map((field) => [identity(field), field]));
    for (const field of fresh.querySelectorAll(FIELDS)) {
      const before = typed.get(identity(field));
      if (before) Object.assign(field, field.type === "checkbox" ? { checked: before.checked } : { value: before.value });
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

  const TEXTS = "input:not([type=hidden]):not([type=checkbox]), textarea";
  const FIELDS = `${TEXTS}, select, input[type=checkbox]`;

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

  // ---- The transcript: a sequence of records, each with its position. The page has a window of it: at the end it follows the run, and scrolling
  // moves the window.

  const records = byId("records");
  const MAX_RECORDS = 3000;
  // The requests for what a page missed; more would delay what a person wants to see.
  const MAX_MISSED = 20;
  const MISSED_TOO_MUCH = new Error("the page missed too much");
  let queue = Promise.resolve();
  let newestAttempt = records?.dataset.newest;
  // Whether the page was loaded with the newest attempt. Its heading names the newest attempt.
  const isOfNewest = records?.dataset.attempt === newestAttempt;
  // Whether the window ends before the newest record. Then new records are only counted as there.
  let isDetached = !isOfNewest;
  let isAtEnd = isOfNewest;

  const run = () => records.dataset.run;
  const position = () => Number(records.dataset.to);
  // The attempt and the position of the first record on the page.
  const first = records && { attempt: records.dataset.attempt, from: Number(records.dataset.from) };

  async function load(attempt, query) {
    const response = await fetch(`/runs/${run()}/records?attempt=${attempt}&${query}`);
    if (!response.ok) throw new Error(`${response.status}`);
    return response.json();
  }

  // Returns the new records as elements that know their attempt.
  function elements(html, attempt) {
    const template = document.createElement("template");
    template.innerHTML = html;
    const all = [...template.content.children];
    for (const record of all) record.dataset.attempt = attempt;
    return all;
  }

  function attemptTitle(name) {
    const [iteration, attempt] = name.split("-");
    return `Iteration ${iteration}` + (attempt === "1" ? "" : `, attempt ${attempt}`);
  }

  function showHeading() {
    if (isOfNewest) byId("attempt").textContent = attemptTitle(newestAttempt);
  }

  const titleRecord = (name) => `<div class="rec end">${attemptTitle(name)}</div>`;

  // The next records are those of this attempt.
  function beginAttempt(name) {
    addAfter(titleRecord(name));
    Object.assign(records.dataset, { attempt: name, to: 0 });
  }

  // A message repeats the text that was streamed before it.
  function addAfter(html) {
    for (const record of elements(html, records.dataset.attempt)) {
      if (record.classList.contains("message")) {
        while (records.lastElementChild?.classList.contains("text")) records.lastElementChild.remove();
      }
      records.append(record);
    }
  }

  function trimStart() {
    // The first record that stays has a position, so it is no title.
    let isTrimmed = false;
    while (records.childElementCount > MAX_RECORDS || (isTrimmed && records.firstElementChild && !records.firstElementChild.dataset.at)) {
      records.firstElementChild.remove();
      byId("earlier").hidden = false;
      isTrimmed = true;
    }
    const top = [...records.children].find((record) => record.dataset.at);
    if (top && !byId("earlier").hidden) Object.assign(first, { attempt: top.dataset.attempt, from: Number(top.dataset.at) });
  }

  function trimEnd() {
    let last = null;
    while (records.childElementCount > MAX_RECORDS || (last && !last.dataset.at && records.childElementCount)) {
      last = records.lastElementChild;
      last.remove();
    }
    if (!last?.dataset.at) return;
    Object.assign(records.dataset, { attempt: last.dataset.attempt, to: last.dataset.at });
    detach(true);
  }

  function detach(isNow) {
    isDetached = isNow;
    if (isNow) isAtEnd = false;
    byId("newest").hidden = !isNow;
  }

  // Changes the records, and keeps one of them where it is on the screen.
  function keepInPlace(record, change) {
    const top = record?.getBoundingClientRect().top ?? 0;
    change();
    if (record?.isConnected) records.scrollTop += record.getBoundingClientRect().top - top;
  }

  function append(add) {
    keepInPlace(isAtEnd ? null : records.lastElementChild, () => {
      add();
      if (isAtEnd || records.childElementCount > 3 * MAX_RECORDS) trimStart();
    });
    if (isAtEnd) {
      records.scrollTop = records.scrollHeight;
    } else {
      byId("newest").hidden = false;
    }
  }

  // Appends the records up to a position that the page doesn't have yet. At the end of the attempt, returns the name of the next one, if there is one.
  // Returns the next attempt, or null. Fails after too many loads: then a person decides which records to read.
  async function catchUp(to, loads) {
    while (position() < to) {
      if (loads.left-- === 0) throw MISSED_TOO_MUCH;
      const more = await load(records.dataset.attempt, `after=${position()}`);
      if (more.to <= position()) return more.next;
      append(() => addAfter(more.html));
      records.dataset.to = more.to;
    }
    return null;
  }

  async function showRecords(message) {
    newestAttempt = message.attempt;
    if (isDetached) return;
    const loads = { left: MAX_MISSED };
    // The page may have missed whole attempts while it was not connected.
    while (message.attempt !== records.dataset.attempt) {
      const next = await catchUp(Infinity, loads);
      append(() => beginAttempt(next ?? message.attempt));
      showHeading();
    }
    if (message.to <= position()) return;
    if (message.from === position()) {
      append(() => addAfter(message.html));
      records.dataset.to = message.to;
    } else {
      await catchUp(message.to, loads);
    }
  }

  async function showEarlier() {
    let attempt = first.attempt;
    let before = await load(attempt, `before=${first.from}`);
    let titles = "";
    // The first record of an attempt follows the last one of the attempt before it.
    while (before.to === 0 && before.previous) {
      titles = titleRecord(attempt) + titles;
      attempt = before.previous;
      before = await load(attempt, "");
    }
    keepInPlace(records.firstElementChild, () => {
      const fresh = elements(before.html, attempt);
      if (!titles && records.querySelector(".rec[data-at]")?.classList.contains("message")) {
        while (fresh.at(-1)?.classList.contains("text")) fresh.pop();
      }
      records.prepend(...fresh, ...elements(titles, attempt));
      Object.assign(first, { attempt, from: before.from });
      byId("earlier").hidden = before.from === 0 && !before.previous;
      if (records.childElementCount > 2 * MAX_RECORDS) trimEnd();
    });
  }

  // Returns whether the page has more records now.
  async function showLater() {
    for (;;) {
      const after = await load(records.dataset.attempt, `after=${position()}`);
      if (after.to > position()) {
        keepInPlace(records.lastElementChild, () => {
          addAfter(after.html);
          records.dataset.to = after.to;
          if (records.childElementCount > 2 * MAX_RECORDS) trimStart();
        });
        return true;
      }
      if (!after.next) break;
      keepInPlace(records.lastElementChild, () => beginAttempt(after.next));
    }
    // At the end of the newest attempt, the page follows the run again.
    if (records.dataset.attempt === newestAttempt) {
      detach(false);
      isAtEnd = records.scrollHeight - records.scrollTop - records.clientHeight < 40;
    }
    return false;
  }

  async function showEnd() {
    if (isDetached) {
      const end = await load(newestAttempt, "");
      records.replaceChildren(...elements(end.html, newestAttempt));
      Object.assign(records.dataset, { attempt: newestAttempt, from: end.from, to: end.to });
      Object.assign(first, { attempt: newestAttempt, from: end.from });
      byId("earlier").hidden = end.from === 0 && !end.previous;
      detach(false);
      showHeading();
    }
    records.scrollTop = records.scrollHeight;
  }

  if (records) {
    let isLoading = false;
    const request = (change) => {
      if (isLoading) return;
      isLoading = true;
      queue = queue.then(change)
        .catch(() => toast("The records can't be loaded; is the page still logged in?", true))
        .then((hasMore) => {
          isLoading = false;
          // A few short records leave nothing to scroll.
          if (hasMore === true) showLaterAtEnd();
        });
    };
    const below = () => records.scrollHeight - records.scrollTop - records.clientHeight;
    const showLaterAtEnd = () => {
      if (isDetached && below() < 200) request(showLater);
    };
    for (const record of records.children) record.dataset.attempt = records.dataset.attempt;
    records.addEventListener("scroll", () => {
      isAtEnd = !isDetached && below() < 40;
      if (isAtEnd) byId("newest").hidden = true;
      if (isDetached && below() < 200) showLaterAtEnd();
      else if (records.scrollTop < 200 && !byId("earlier").hidden) request(showEarlier);
    });
    byId("newest").addEventListener("click", () => request(showEnd));
    byId("earlier").addEventListener("click", () => request(showEarlier));
    records.scrollTop = records.scrollHeight;
    showLaterAtEnd();
  }

  // ---- Actions: a form is sent without leaving the page.

  function toast(text, isBad) {
    const place = byId("toast");
    place.textContent = text;
    place.className = isBad ? "bad" : "good";
    clearTimeout(toast.timer);
    // An error stays until a click or Escape.
    if (!isBad) toast.timer = setTimeout(endToast, 8000);
  }

  function endToast() {
    const place = byId("toast");
    place.textContent = "";
    place.className = "";
  }
  byId("toast").addEventListener("click", () => { if (getSelection().isCollapsed) endToast(); });

  async function send(form, action, confirmed) {
    const fields = new URLSearchParams(new FormData(form));
    const sent = new Map([...form.querySelectorAll(TEXTS)].map((field) => [field, field.value]));
    fields.set("action", action);
    if (confirmed) fields.set("confirmed", "yes");
    const response = await fetch(form.getAttribute("action"), { method: "POST", body: fields, headers: { accept: "application/json" } });
    if (!response.headers.get("content-type")?.includes("json")) {
      const texts = { 401: "The page is not logged in any more. Open it with: rlm view", 403: "This page may only read.", 404: "The run was removed.", 413: "The message is too long.", 503: "The server has no answer yet; the action may still take effect." };
      toast(texts[response.status] ?? `The server answers with an error (${response.status}).`, true);
      return;
    }
    const { result, text } = await response.json();
    if (result === "confirm") {
      if (await ask(text, [["yes", "Yes", "danger"], ["no", "No", ""]]) === "yes") await send(form, action, true);
      return;
    }
    // The result of a fork names the new run, so it stays until it is read.
    if (result === "done" && action === "fork") await ask(text, [["close", "Close", "main"]]);
    else toast(text, result !== "done");
    // A rejected message stays in its field.
    if (result === "done") sent.forEach((value, field) => { if (field.value === value) field.value = ""; });
  }

  // Without the script there is no button that copies.
  document.documentElement.classList.add("script");
  document.addEventListener("click", ({ target }) => {
    const button = target.closest("button.copy");
    if (!button) return;
    const text = button.parentElement.querySelector("code").textContent;
    navigator.clipboard.writeText(text).then(() => toast("Copied.", false), () => toast("The browser refuses to copy; select the text instead.", true));
  });

  // Shows a text until a person presses a button, the last one unless they choose another. Returns its value.
  function ask(text, buttons) {
    return new Promise((resolve) => {
      const dialog = document.createElement("dialog");
      const question = document.createElement("p");
      question.textContent = text;
      const form = document.createElement("form");
      form.method = "dialog";
      for (const [value, label, look] of buttons) {
        const button = document.createElement("button");
        button.value = value;
        button.textContent = label;
        button.className = look;
        button.autofocus = value === buttons.at(-1)[0];
        form.append(button);
      }
      dialog.append(question, form);
      document.body.append(dialog);
      dialog.addEventListener("close", () => { dialog.remove(); resolve(dialog.returnValue); });
      dialog.showModal();
    });
  }

  document.addEventListener("submit", (event) => {
    const form = event.target;
    const action = event.submitter?.value;
    if (form.getAttribute("action") === "/new") {
      // A second press must not start a second run. The browser reads the values of the form after this event.
      setTimeout(() => { for (const button of form.querySelectorAll("button")) button.disabled = true; });
      return;
    }
    if (!form.getAttribute("action")?.endsWith("/act") || !action) return;
    event.preventDefault();
    const button = event.submitter;
    button.disabled = true;
    send(form, action).catch(() => toast("The server doesn't respond. Is rlm view still running?", true)).finally(() => { button.disabled = false; });
  });

  // The way back to the list keeps its filter, in this tab.
  const LIST = "list";
  let list = "/";
  try {
    if (location.pathname === "/") sessionStorage.setItem(LIST, location.search);
    list += sessionStorage.getItem(LIST) ?? "";
  } catch {
    // The browser stores nothing.
  }
  for (const link of document.querySelectorAll(".crumbs a[href='/']")) link.href = list;

  document.addEventListener("keydown", (event) => {
    const isField = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
    if ((event.ctrlKey || event.metaKey) && event.key === "Enter" && event.target.id === "steer-text") {
      event.preventDefault();
      event.target.form.querySelector("button.main").click();
    } else if (isField || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog")) {
      if (event.key === "Escape") event.target.blur();
    } else if (event.key === "Escape") {
      endToast();
    } else if (event.key === "/") {
      const field = document.querySelector("input[type=search], #steer-text");
      if (field) { event.preventDefault(); field.focus(); }
    } else if (event.key === "j" || event.key === "k") {
      const links = [...document.querySelectorAll("#rows a")];
      const here = links.indexOf(document.activeElement);
      links[Math.min(Math.max(here + (event.key === "j" ? 1 : -1), 0), links.length - 1)]?.focus();
    } else if (event.key === "g" || event.key === "i") {
      // A message that was typed and not sent must not be lost.
      if ([...document.querySelectorAll("textarea, form:not(.filter) input:not([type=hidden]):not([type=checkbox])")].some((field) => field.value)) return;
      location.href = event.key === "g" ? list : "/inbox";
    }
  });

  for (const choice of document.querySelectorAll(".filter input[type=radio], .filter select")) {
    choice.addEventListener("change", () => choice.form.requestSubmit());
  }

  // ---- The connection. All tabs share one stream, since a browser opens only six connections to a server.

  function received(message) {
    if (message.topic !== null && message.topic !== topic) return;
    if (message.parts) showParts(message.parts, message.order);
    if (message.parts?.waiting) showWaiting();
    // The first transcript of a run has no place on a page that was loaded before it.
    if (message.records && !records) location.reload();
    if (message.records && records) {
      queue = queue.then(() => showRecords(message.records)).catch((error) => {
        // Scrolling, or "Newest records", loads what is missing. After a failed request, the next message tries again.
        if (error === MISSED_TOO_MUCH) detach(true);
      });
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
