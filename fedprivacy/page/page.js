// Sends a form when it changes or is submitted, and puts the messages of the answer into the page.
"use strict";

const status = document.getElementById("status");
const running = new Map();

function fieldsOf(form) {
  const fields = {};
  for (const input of form.elements) {
    const left = !input.name || input.disabled || (input.type === "radio" && !input.checked);
    // A field that is not shown does not belong to the question.
    const shown = input.type === "radio" || input.closest("details") || input.getClientRects().length;
    if (!left && shown) fields[input.name] = input.value;
  }
  return fields;
}

function filesOf(form) {
  const input = form.querySelector("input[type=file]");
  return input ? [...input.files] : [];
}

async function ask(form, more = {}) {
  const task = form.dataset.task;
  running.get(task)?.abort();
  const stop = new AbortController();
  running.set(task, stop);
  const files = filesOf(form);
  const head = { fields: { ...fieldsOf(form), ...more }, files: files.map(({ name, size }) => ({ name, size })) };
  const most = Number(form.dataset.most ?? 0);
  if (files.reduce((sum, file) => sum + file.size, 0) > most * 2 ** 20) {
    return fail(form, `The files must have at most ${most} MiB together. Use the command line for larger ones.`);
  }
  const answer = form.querySelector(".answer");
  answer.classList.add("stale");
  answer.setAttribute("aria-busy", "true");
  try {
    const type = { "Content-Type": "application/octet-stream" };
    const body = new Blob([JSON.stringify(head), "\n", ...files]);
    const response = await fetch(`ask/${task}`, { method: "POST", headers: type, body, signal: stop.signal });
    if (!response.ok) return fail(form, await response.text());
    fail(form, "");
    await read(form, response.body.getReader(), stop);
  } catch (problem) {
    if (problem.name === "AbortError") return;
    fail(form, problem.name === "NotReadableError" ? "The file has changed. Choose it again."
      : "The page has no answer. Is the command fedprivacy page still running?");
  } finally {
    if (running.get(task) === stop) {
      answer.classList.remove("stale");
      answer.setAttribute("aria-busy", "false");
      if (form.dataset.live === undefined) answer.firstElementChild?.scrollIntoView({ block: "nearest" });
    }
  }
}

async function read(form, reader, stop) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done || stop.signal.aborted) return;
    const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
    rest = lines.pop();
    for (const line of lines) take(form, JSON.parse(line));
  }
}

function take(form, message) {
  if ("problems" in message) mark(form, message.problems);
  if ("asked" in message) askFor(form, message.asked);
  if ("put" in message) {
    const place = document.getElementById(message.put);
    if (place) {
      place.innerHTML = message.html;
      place.classList.remove("old");
      place.classList.remove("stale");
      place.removeAttribute("aria-busy");
    }
  }
  if ("save" in message) save(message.save);
  if ("failed" in message) fail(form, message.failed);
  if ("say" in message) status.textContent = message.say;
}

function fail(form, text) {
  const place = form.querySelector(".failure");
  place.textContent = text;
  place.hidden = !text;
  if (text) status.textContent = text;
}

function mark(form, problems) {
  for (const field of form.querySelectorAll("[data-field]")) {
    const name = field.dataset.field;
    const text = problems[name] ?? "";
    const place = field.querySelector(".problem");
    if (place && place.textContent !== text) place.textContent = text;
    for (const input of field.querySelectorAll("input, select")) {
      if (text) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
    }
    if (text) {
      field.closest(".facts")?.classList.add("all");
      const hidden = field.closest("details");
      if (hidden) hidden.open = true;
    }
  }
  if (form.dataset.live === undefined) form.querySelector("[aria-invalid]")?.focus();
}

function askFor(form, names) {
  for (const field of form.querySelectorAll("[data-field]")) {
    // A fact that was asked for stays, so that its answer can be changed.
    if (names.includes(field.dataset.field)) field.classList.add("asked");
  }
  only(form);
  form.querySelector(".asked input, .asked select")?.focus();
}

// An answer to an earlier form stays, marked, and its report cannot be saved.
function outdate(form, input) {
  if (input.closest(".more")) return;
  const answer = form.querySelector(".answer");
  if (!answer.querySelector(".hero, table")) return;
  answer.classList.add("old");
  for (const button of answer.querySelectorAll("[data-save]")) button.disabled = true;
}

// Shows the fields that the chosen sampling needs.
function only(form) {
  for (const field of form.querySelectorAll("[data-only]")) {
    const near = field.closest(".setting") ?? form;
    const radio = near.querySelector("input[type=radio][name$=sampling]:checked");
    const chosen = (radio ?? near.querySelector("select[name$=sampling]"))?.value;
    field.hidden = Boolean(chosen) && !field.dataset.only.split(" ").includes(chosen);
    if (!chosen) field.hidden = form.dataset.task === "audit";
  }
}

function save({ name, type, text }) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  // Some browsers read it after the click.
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  status.textContent = `${name} was saved.`;
}

function add(name, place, number) {
  const made = document.getElementById(name).content.cloneNode(true);
  for (const part of made.querySelectorAll("*")) {
    for (const { name: attribute, value } of [...part.attributes]) {
      if (value.includes("-N-")) part.setAttribute(attribute, value.replaceAll("-N-", `-${number}-`));
    }
  }
  const whole = made.firstElementChild;
  place.append(made);
  return whole;
}

// ---- tabs

const tabs = [...document.querySelectorAll("[role=tab]")];

function show(tab, focus) {
  for (const one of tabs) {
    const chosen = one === tab;
    one.setAttribute("aria-selected", String(chosen));
    one.tabIndex = chosen ? 0 : -1;
    document.getElementById(one.getAttribute("aria-controls")).hidden = !chosen;
  }
  history.replaceState(null, "", `#${tab.getAttribute("aria-controls")}`);
  if (focus) tab.focus();
}

for (const tab of tabs) {
  tab.addEventListener("click", () => show(tab));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const end = { Home: 0, End: tabs.length - 1 }[event.key];
    if (step === undefined && end === undefined) return;
    event.preventDefault();
    show(tabs[end ?? (tabs.indexOf(tab) + step + tabs.length) % tabs.length], true);
  });
}

// ---- forms

for (const form of document.forms) {
  let later = 0;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask(form);
  });
  form.addEventListener("input", (event) => {
    only(form);
    if (form.dataset.live === undefined) return outdate(form, event.target);
    clearTimeout(later);
    later = setTimeout(() => ask(form), event.target.type === "text" ? 40 : 0);
  });
  only(form);
}

for (const drop of document.querySelectorAll(".drop")) {
  const input = drop.querySelector("input");
  const over = (event) => {
    event.preventDefault();
    drop.classList.toggle("over", event.type === "dragover");
  };
  drop.addEventListener("dragover", over);
  drop.addEventListener("dragleave", over);
  drop.addEventListener("drop", (event) => {
    over(event);
    input.files = event.dataTransfer.files;
    input.dispatchEvent(new Event("change", { bubbles: true }));
  });
  input.addEventListener("change", () => {
    const names = [...input.files].map((file) => file.name).join(", ");
    drop.querySelector(".chosen").textContent = names || "or drop it here";
    drop.parentElement.querySelector("[data-clear]").hidden = !names;
    if (input.form.dataset.task === "audit") {
      for (const field of input.form.querySelectorAll(".asked")) field.classList.remove("asked");
      if (names) ask(input.form);
    } else files(input);
  });
}
// A file that misses its place must not replace the page.
for (const kind of ["dragover", "drop"]) addEventListener(kind, (event) => event.preventDefault());

function files(input) {
  const place = document.querySelector("[data-files]");
  place.replaceChildren();
  [...input.files].forEach((file, number) => {
    if (/\.(csv|json)$/i.test(file.name)) return;
    add("a-file", place, number).querySelector("legend").textContent = file.name;
  });
}

let settings = 0;

function addSetting(values = {}) {
  const number = settings++;
  const made = add("a-setting", document.querySelector("[data-settings]"), number);
  made.querySelector("legend").textContent = `Setting ${number + 1}`;
  for (const [name, value] of Object.entries({ label: `setting ${number + 1}`, ...values })) {
    const input = made.querySelector(`[name="setting-${number}-${name}"]`);
    if (input) input.value = value;
  }
  only(made.closest("form"));
  return made;
}

addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const form = button.closest("form");
  if (button.dataset.copy) copy(button);
  if (button.dataset.clear !== undefined) {
    const input = form.querySelector("input[type=file]");
    input.value = "";
    input.dispatchEvent(new Event("change", { bubbles: true }));
    input.focus();
  }
  if (button.dataset.save) ask(form, { format: button.dataset.save });
  if (button.dataset.all !== undefined) {
    const all = button.closest(".facts").classList.toggle("all");
    button.setAttribute("aria-expanded", String(all));
    button.textContent = all ? "Show only what is asked" : "Show all facts";
  }
  if (button.dataset.add !== undefined) addSetting().querySelector("input").focus();
  if (button.dataset.remove !== undefined) {
    button.closest(".setting").remove();
    document.querySelector("[data-add]").focus();
  }
  if (button.dataset.compare !== undefined) {
    const values = fieldsOf(form);
    if (button.dataset.compare) values.noise_multiplier = button.dataset.compare;
    addSetting(values);
    status.textContent = "The run was added to the comparison.";
    button.textContent = "Added to the comparison";
  }
});

async function copy(button) {
  const text = document.getElementById(button.dataset.copy).textContent;
  try {
    await navigator.clipboard.writeText(text);
    status.textContent = "Copied.";
    button.textContent = "Copied";
  } catch {
    status.textContent = "The browser did not copy. Select the text instead.";
  }
}

addSetting({ label: "less noise", noise_multiplier: "1" });
addSetting({ label: "more noise", noise_multiplier: "2" });
// Before another tab hides the form: hidden fields are not sent.
ask(document.forms[0]);
const first = tabs.find((tab) => `#${tab.getAttribute("aria-controls")}` === location.hash);
if (first) show(first);
