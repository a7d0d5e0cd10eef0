"use strict";
// The page is complete without this script, which folds the details, filters the rows and shows tooltips.
(() => {
  const board = document.querySelector(".board");
  if (!board) return;
  const rows = [...board.querySelectorAll("tr.step")];
  const tip = document.getElementById("tip");
  const status = document.getElementById("status");
  const search = document.getElementById("search");
  const expand = document.getElementById("expand");
  const length = Number(board.dataset.length);
  const button = (row) => row.querySelector(".c-step button");
  const details = (row) => document.getElementById(button(row)?.getAttribute("aria-controls"));
  let filter = "all";

  function setOpen(row, isOpen) {
    if (!button(row)) return;
    button(row).setAttribute("aria-expanded", String(isOpen));
    details(row).hidden = !isOpen || row.hidden;
  }
  const isOpen = (row) => button(row)?.getAttribute("aria-expanded") === "true";

  function isMatch(row) {
    const { state, retried, critical } = row.dataset;
    const chosen = { all: true, ran: state !== "skipped", failed: state === "failed", retried, critical }[filter];
    return chosen && row.querySelector(".name").textContent.toLowerCase().includes(search.value.trim().toLowerCase());
  }

  function applyFilter() {
    let shown = 0;
    for (const row of rows) {
      row.hidden = !isMatch(row);
      shown += row.hidden ? 0 : 1;
      setOpen(row, isOpen(row));
    }
    status.textContent = `${shown} of ${rows.length} steps are shown`;
  }

  function formatSeconds(seconds) {
    if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
    if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
    const whole = Math.round(seconds);
    const two = (number) => String(number).padStart(2, "0");
    if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
    return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
  }

  function add(parent, tag, text, name) {
    const node = document.createElement(tag);
    node.textContent = text;
    if (name) node.className = name;
    parent.append(node);
  }

  function showTip(row, x, y) {
    tip.replaceChildren();
    add(tip, "strong", row.querySelector(".name").textContent);
    const cell = (name) => row.querySelector(name)?.textContent;
    const change = cell(".c-change");
    const parts = [row.dataset.state.replace("-", " "), `start ${cell(".c-start")}`, `took ${cell(".c-took")}`];
    if (change) parts.push(`change ${change}`);
    add(tip, "p", parts.join(" · "), "times");
    const more = button(row) && details(row).querySelector("td");
    if (more) tip.append(...[...more.childNodes].slice(0, 3).map((node) => node.cloneNode(true)));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - box.width - 8))}px`;
    tip.style.top = `${y + 20 + box.height > innerHeight ? Math.max(8, y - box.height - 12) : y + 20}px`;
  }
  const hideTip = () => { tip.hidden = true; };

  const cross = document.createElement("div");
  cross.id = "cross";
  cross.hidden = true;
  cross.setAttribute("aria-hidden", "true");
  add(cross, "span", "");
  board.append(cross);

  board.addEventListener("pointermove", (event) => {
    const cell = event.target.closest(".c-timeline");
    cross.hidden = !cell || event.pointerType === "touch";
    if (!cell) return hideTip();
    const box = cell.getBoundingClientRect();
    const part = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
    cross.style.left = `${event.clientX - board.getBoundingClientRect().left - board.clientLeft}px`;
    cross.classList.toggle("left", part > 0.85);
    cross.firstChild.textContent = formatSeconds(part * length);
    const row = cell.closest("tr.step");
    if (row) showTip(row, event.clientX, event.clientY);
    else hideTip();
  });
  board.addEventListener("pointerleave", () => { cross.hidden = true; hideTip(); });
  addEventListener("scroll", hideTip, { passive: true });

  board.addEventListener("click", (event) => {
    const row = event.target.closest("tr.step");
    if (!row || !button(row) || String(getSelection())) return;
    setOpen(row, !isOpen(row));
    hideTip();
  });
  board.addEventListener("focusin", (event) => {
    const row = event.target.closest("tr.step");
    if (!row || !event.target.matches(":focus-visible") || isOpen(row)) return hideTip();
    const box = event.target.getBoundingClientRect();
    showTip(row, box.left, box.bottom - 12);
  });
  board.addEventListener("focusout", hideTip);

  addEventListener("keydown", (event) => {
    if (event.key === "Escape") hideTip();
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/" && event.target !== search) {
      event.preventDefault();
      search.focus();
    }
    const buttons = rows.filter((row) => !row.hidden).map(button).filter(Boolean);
    const current = buttons.indexOf(document.activeElement);
    if (current < 0) return;
    const next = { ArrowDown: current + 1, ArrowUp: current - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (buttons[next]) {
      event.preventDefault();
      buttons[next].focus();
    }
  });

  for (const choice of document.querySelectorAll("[data-filter]")) {
    choice.addEventListener("click", () => {
      filter = choice.dataset.filter;
      for (const each of document.querySelectorAll("[data-filter]")) {
        each.setAttribute("aria-pressed", String(each === choice));
      }
      applyFilter();
    });
  }
  search.addEventListener("input", applyFilter);
  expand.addEventListener("click", () => {
    const isExpanded = expand.getAttribute("aria-pressed") !== "true";
    expand.setAttribute("aria-pressed", String(isExpanded));
    expand.textContent = isExpanded ? "Hide all details" : "Show all details";
    for (const row of rows) setOpen(row, isExpanded);
  });

  function openTarget() {
    const row = location.hash && document.getElementById(location.hash.slice(1));
    if (row && row.matches("tr.step")) setOpen(row, true);
  }
  for (const row of rows) setOpen(row, row.dataset.state === "failed" || row.dataset.state === "in-flight");
  document.querySelector(".controls").hidden = false;
  openTarget();
  addEventListener("hashchange", openTarget);
})();
