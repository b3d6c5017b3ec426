// The script of the explorer. Every page works without it.
//
// Data from the server are only set as text, never as markup.
"use strict";

const INTERVAL_MS = 300;

// Follows a scan, and loads the page again when it is over.
async function follow(section) {
  const bar = section.querySelector("progress");
  const text = section.querySelector("[role=status]");
  try {
    const answer = await fetch("/scan/" + section.dataset.scan, { cache: "no-store" });
    const scan = await answer.json();
    if (scan.progress !== null) bar.value = scan.progress;
    text.textContent = scan.text;
    if (scan.is_over) return location.reload();
  } catch {
    text.textContent = "The explorer does not answer.";
  }
  setTimeout(() => follow(section), INTERVAL_MS);
}

document.querySelectorAll("[data-scan]").forEach(follow);

// "/" leads to the search, as on many sites.
document.addEventListener("keydown", (event) => {
  const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  document.getElementById("q").focus();
});
