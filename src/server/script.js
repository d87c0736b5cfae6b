// Fetches the changing part anew every two seconds and puts it in place of the old one, if it differs. Nothing else: without
// this script the page is whole, and a reload shows the present.
"use strict";

const live = document.getElementById("live");
const connection = document.getElementById("connection");
let shown = live.innerHTML;
let timer;

const say = (text) => {
  if (connection.textContent !== text) connection.textContent = text;
};

const refresh = async () => {
  clearTimeout(timer);
  try {
    const answer = await fetch("live", { cache: "no-store", signal: AbortSignal.timeout(8000) });
    if (answer.status === 401 || answer.status === 403) {
      location.reload();
      return;
    }
    if (!answer.ok) throw new Error("HTTP " + answer.status);
    const next = await answer.text();
    say("");
    if (next !== shown) {
      // Whoever selects text or stands on a link is not disturbed.
      const focus = live.contains(document.activeElement) ? document.activeElement.id : "";
      if (getSelection().isCollapsed || !live.contains(getSelection().anchorNode)) {
        live.innerHTML = next;
        shown = next;
        if (focus) document.getElementById(focus)?.focus();
      }
    }
  } catch {
    say("Picus does not answer; what is shown is old.");
  }
  timer = setTimeout(refresh, document.hidden ? 15000 : 2000);
};

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) refresh();
});
timer = setTimeout(refresh, 2000);
