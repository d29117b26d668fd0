// SPDX-License-Identifier: Apache-2.0
// Keeps the parts of a page current that are marked data-live. Without it a page stays as it was loaded.
"use strict";

(() => {
  const parts = () => document.querySelectorAll("[data-live]");
  const news = document.getElementById("news");
  if (!parts().length || !news || !window.EventSource) return;

  const least = 3000; // milliseconds between two loads
  let shown = null, due = null, last = Date.now(), loading = false;

  const focused = () => {
    const at = document.activeElement;
    if (!at || at === document.body) return null;
    if (at.id) return () => document.getElementById(at.id);
    const href = at.getAttribute("href");
    return href === null ? null : () => [...document.querySelectorAll("a[href]")].find((a) => a.getAttribute("href") === href);
  };

  const replace = (fresh) => {
    const found = [...parts()];
    const next = fresh.querySelectorAll("[data-live]");
    if (next.length !== found.length) return location.reload();
    let changed = false;
    found.forEach((part, i) => {
      if (part.innerHTML === next[i].innerHTML) return;
      const again = part.contains(document.activeElement) ? focused() : null;
      const scrolled = [...part.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
      part.replaceChildren(...next[i].childNodes);
      part.querySelectorAll(".scroll").forEach((box, n) => { box.scrollLeft = scrolled[n] || 0; });
      if (again && again()) again().focus();
      changed = true;
    });
    document.title = fresh.title;
    const heading = document.querySelector("h1").textContent;
    if (changed && news.dataset.heading !== heading) {
      if (news.dataset.heading) news.textContent = heading;
      news.dataset.heading = heading;
    }
  };

  const load = async () => {
    due = null;
    if (loading) return soon();
    loading = true;
    last = Date.now();
    try {
      const answer = await fetch(location.href, { credentials: "same-origin" });
      if (answer.redirected) return location.reload();
      if (answer.ok) replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
    } catch {
      // the host is away; the stream comes back when it does
    } finally {
      loading = false;
    }
  };

  const soon = () => {
    if (due === null) due = setTimeout(load, Math.max(0, last + least - Date.now()));
  };

  news.dataset.heading = document.querySelector("h1").textContent;
  const source = new EventSource("/changes");
  source.addEventListener("version", (event) => {
    if (shown !== event.data) soon(); // the first one, too: something may have changed since the page was put together
    shown = event.data;
  });
  addEventListener("pagehide", () => source.close());
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
})();
