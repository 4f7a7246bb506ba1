"use strict";
// Asks for news every second and puts in place what changed; what cannot be asked for is shown as old.
const main = document.querySelector("main");
const lost = document.getElementById("lost");
const stale = document.getElementById("stale");
async function look() {
  try {
    const answer = await fetch("/body?seen=" + main.dataset.token, { cache: "no-store", signal: AbortSignal.timeout(15000) });
    if (answer.status === 200) {
      replace(new DOMParser().parseFromString(await answer.text(), "text/html").body);
      main.dataset.token = answer.headers.get("X-Token");
    } else if (answer.status !== 204) {
      throw new Error(answer.status);
    }
    lost.hidden = true;
  } catch {
    if (lost.hidden) lost.textContent = "Connection lost at " + new Date().toLocaleTimeString() + ": what stands below is old.";
    lost.hidden = false;
  }
  document.body.classList.toggle("lost", !lost.hidden);
  age();
  setTimeout(look, 1000);
}
function replace(fresh) {
  const parts = [...fresh.children];
  for (const old of [...main.children]) if (!parts.some((part) => part.id === old.id)) old.remove();
  parts.forEach((part, place) => {
    const old = document.getElementById(part.id);
    if (!old) main.insertBefore(part, main.children[place] ?? null);
    else if (old.innerHTML !== part.innerHTML) old.innerHTML = part.innerHTML;
    document.getElementById(part.id).className = part.className;
  });
  document.title = main.querySelector("h1").textContent + ": " + document.getElementById("name").firstChild.textContent;
}
const STALE = 3600;  // seconds without a row after which nothing here may be taken for what happens now
function age() {
  let old = "";
  for (const each of document.querySelectorAll("[data-written]")) {
    const seconds = Math.max(0, Math.round(Date.now() / 1000 - each.dataset.written));
    const text = seconds < 120 ? seconds + " s" : seconds < 7200 ? Math.round(seconds / 60) + " min" : Math.round(seconds / 3600) + " h";
    each.textContent = "last row written " + text + " ago";
    if (seconds >= STALE) old = "No row for " + text + ": what stands below is as it was then. ";
  }
  stale.hidden = !old;
  if (old) stale.textContent = old + "An order that awaits its outcome is still open.";
  document.body.classList.toggle("stale", !stale.hidden);
}
look();
