// Keeps the page as it would be if it were loaded again: asks for the same HTML every two seconds and takes over what has changed.
// Folds, focus, selection and place stay. Without this script the page shows the same, once.
"use strict";

const PERIOD = 2000, LONGEST_PERIOD = 15000, PATIENCE = 10000, TYPING = 250;
const KEPT = new Set(["open", "data-age"]); // attributes that are the reader's or this script's
const find = (id) => document.getElementById(id);

// What is shown: the page itself, and the sections of resources that were asked for whole, by their ids.
const page = { address: location.pathname + location.search, tag: document.documentElement.dataset.tag };
const grown = new Map();
const folds = new Map(JSON.parse(sessionStorage.getItem("folds") || "[]"));
let paused = false, failures = 0, answered = Date.now(), ahead = 0, title = document.title, wake = () => {};

// ---- taking over what has changed

function morph(old, fresh, withFolds) {
  if (old.hasAttribute("data-own")) return;
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && (withFolds || !KEPT.has(name))) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && (withFolds || !KEPT.has(name))) old.setAttribute(name, value);
  }
  const wanted = new Set([...fresh.children].map((child) => child.id));
  const there = new Map();
  for (const child of [...old.children]) {
    if (!child.id) continue;
    if (wanted.has(child.id)) there.set(child.id, child);
    else child.remove();
  }
  let next = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const same = child.id ? there.get(child.id) : next && !next.id && next.nodeName === child.nodeName ? next : null;
    if (!same) {
      old.insertBefore(child, next);
      continue;
    }
    if (next && next !== same && next.nextSibling === same) { // one has gone to a place below: the others stay
      const moved = next;
      next = same;
      old.appendChild(moved);
    }
    if (same === next) next = next.nextSibling;
    else old.insertBefore(same, next);
    if (same.nodeType === Node.ELEMENT_NODE) morph(same, child, withFolds);
    else if (same.data !== child.data) same.data = child.data;
  }
  while (next) {
    const gone = next;
    next = next.nextSibling;
    gone.remove();
  }
}

function takeOver(fresh, withFolds) {
  for (const id of grown.keys()) { // their devices come from an answer of their own
    const [here, there] = [find(id), fresh.getElementById(id)];
    if (here && there) for (const part of [".devices", ".rest"]) {
      there.querySelector(part).replaceWith(here.querySelector(part).cloneNode(true));
    }
  }
  const focused = document.activeElement;
  title = fresh.title;
  morph(document.querySelector("header"), fresh.querySelector("header"), withFolds);
  morph(document.querySelector("main"), fresh.querySelector("main"), withFolds);
  if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
}

// ---- asking

async function ask(source) {
  const headers = source.tag ? { "If-None-Match": source.tag } : {};
  const answer = await fetch(source.address, { headers, cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
  ahead = Date.parse(answer.headers.get("Date")) - Date.now() || 0;
  const scanned = answer.headers.get("Devherd-Scanned"), time = document.querySelector("#scanned time");
  if (scanned && time) time.dateTime = time.textContent = scanned;
  if (answer.status === 304) return null;
  if (!answer.ok) throw new Error(answer.statusText);
  const text = await answer.text();
  source.tag = answer.headers.get("ETag");
  return new DOMParser().parseFromString(text, "text/html");
}

const built = (page) => page.querySelector("script").getAttribute("src");

async function refresh(withFolds = false) {
  const asked = page.address;
  try {
    const fresh = await ask(page);
    if (asked !== page.address) return;
    if (fresh && built(fresh) !== built(document)) location.reload(); // devherd was replaced: so is this script
    else if (fresh) takeOver(fresh, withFolds);
    for (const [id, source] of grown) if (find(id)) await grow(id, source);
    failures = 0;
    answered = Date.now() + ahead;
  } catch (error) {
    failures += 1;
  }
  tell();
}

async function grow(id, source) {
  const fresh = await ask(source);
  const section = fresh && fresh.getElementById(id);
  if (!section) return;
  grown.set(id, source);
  for (const part of [".devices", ".rest"]) morph(find(id).querySelector(part), section.querySelector(part));
}

const sleep = (time) => new Promise((done) => { wake = done; setTimeout(done, time); });

async function live() {
  for (;;) {
    await sleep(failures ? Math.min(PERIOD * 2 ** failures, LONGEST_PERIOD) : PERIOD);
    if (!paused && !document.hidden) await refresh();
  }
}

// ---- telling how old it is

function age(seconds) {
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit} ago`;
  }
  return `${Math.max(0, Math.floor(seconds))} s ago`;
}

const moment = (time) => new Date(time).toISOString().slice(0, 19).replace("T", " ") + "Z";

function say(id, text) { // a screen reader says what is set
  if (find(id).textContent !== text) find(id).textContent = text;
}

function tell() {
  const now = Date.now() + ahead;
  for (const time of document.querySelectorAll("time")) {
    time.dataset.age = age((now - Date.parse(time.dateTime)) / 1000);
  }
  document.body.classList.toggle("lost", failures > 0);
  document.title = failures ? `No answer: ${find("host").textContent}` : title;
  const before = document.querySelector("#verdict .verdict").textContent;
  find("silence").hidden = !failures;
  say("silence", failures ? `No answer since ${moment(answered)}; before that: ${before}` : "");
  say("state", paused ? "paused" : failures ? "no answer, trying again" : "live");
  say("as-of", `as of ${moment(answered).slice(11)}`);
}

// ---- what the reader does

function pause() {
  paused = !paused;
  find("pause").setAttribute("aria-pressed", String(paused));
  tell();
  wake();
}

async function narrow(text) {
  const query = new URLSearchParams(location.search);
  for (const name of ["filter", "from", "skip"]) query.delete(name);
  if (text.trim()) query.set("filter", text.trim());
  page.address = location.pathname + (query.size ? `?${query}` : "");
  page.tag = "";
  grown.clear();
  history.replaceState(null, "", page.address + location.hash);
  await refresh(true);
  if (!text.trim()) unfold();
}

function remember(summary) {
  const details = summary.parentElement;
  if (find("filter").value || !details.parentElement.id) return; // a filter's folds say nothing about the whole
  folds.set(details.parentElement.id, !details.open);
  sessionStorage.setItem("folds", JSON.stringify([...folds].slice(-500)));
}

function unfold() {
  for (const [id, open] of folds) {
    const details = find(id) && find(id).querySelector("details");
    if (details) details.open = open;
  }
}

async function growFrom(link) {
  const section = link.closest("section");
  await grow(section.id, { address: link.getAttribute("href"), tag: "" }).then(tell, () => location.assign(link.href));
}

function visit(id) { // a resource for which this page has no room, or that its filter hides
  const resource = id.split("/", 2).join("/"), query = new URLSearchParams({ resource });
  const isHere = new URLSearchParams(location.search).get("resource") === resource;
  if (resource.includes("/") && !isHere) location.assign(`${location.pathname}?${query}${location.hash}`);
}

async function reveal() {
  const id = decodeURIComponent(location.hash.slice(1)).replace(/::\d+$/, "");
  if (!id) return;
  if (!find(id)) {
    const section = [...document.querySelectorAll(".resource")].find((each) => id.startsWith(`${each.id}/`));
    if (!section) return visit(id);
    const query = new URLSearchParams({ resource: section.id, filter: id.slice(section.id.length + 1) });
    await grow(section.id, { address: `${location.pathname}?${query}`, tag: "" });
  }
  const target = find(id);
  if (!target) return;
  for (let each = target.querySelector("details") || target; each; each = each.parentElement) {
    if (each.tagName === "DETAILS") each.open = true;
  }
  target.scrollIntoView();
  (target.querySelector("summary") || target).focus({ preventScroll: true });
}

let typing = 0;
find("filter").addEventListener("input", (event) => {
  clearTimeout(typing);
  typing = setTimeout(narrow, TYPING, event.target.value);
});
document.querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(typing);
  narrow(find("filter").value);
});
find("pause").addEventListener("click", pause);
document.addEventListener("visibilitychange", () => wake());
document.addEventListener("click", (event) => {
  const summary = event.target.closest("summary"), link = event.target.closest("a.grow");
  if (summary) remember(summary);
  if (link) {
    event.preventDefault();
    growFrom(link);
  }
});
document.addEventListener("toggle", (event) => {
  const link = event.target.open && event.target.parentElement.matches(".resource") && event.target.querySelector("a.grow");
  if (link && folds.get(event.target.parentElement.id)) growFrom(link);
}, true);
addEventListener("hashchange", reveal);

document.documentElement.classList.add("scripted");
find("connection").hidden = false;
unfold();
tell();
addEventListener("load", reveal); // the browser itself goes there first, and knows nothing of folds
live();
