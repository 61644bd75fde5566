"use strict";
// Everything can be read without this. It sorts and filters the table of findings, and shows a part of the activity by day.
(() => {
  document.documentElement.classList.add("scripted");
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const grouped = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, "\u202f");

  const table = document.getElementById("finding-table");
  if (table) {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const text = (row, column) => row.cells[column].textContent.trim();
    table.querySelectorAll("th[data-sort]").forEach((head, column) => {
      const button = document.createElement("button");
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const numbers = head.dataset.sort === "number";
        const order = (a, b) => numbers ? text(a, column) - text(b, column) : text(a, column).localeCompare(text(b, column));
        body.append(...rows.slice().sort((a, b) => down ? order(b, a) : order(a, b)));
      });
    });
    const filter = document.getElementById("filter");
    filter.addEventListener("input", () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const content = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => content.includes(word));
        shown += row.hidden ? 0 : 1;
      }
      document.getElementById("filtered").textContent = words.length ? `${grouped(shown)} of ${grouped(rows.length)} rows` : "";
    });
  }

  const overview = document.querySelector("#overview svg");
  if (!overview || !figures.grid) return;
  const NS = "http://www.w3.org/2000/svg";
  const DAY = 86400000;
  const grid = figures.grid;
  const [width, height] = overview.getAttribute("viewBox").split(" ").slice(2).map(Number);
  const [left, right] = [grid.left * width, grid.right * width];
  const iso = (time) => new Date(time).toISOString().slice(0, 10);
  const starts = [...grid.starts.map(Date.parse), Date.parse(grid.end) + DAY];
  const bars = grid.starts.length;
  const element = (name, attributes, content) => {
    const made = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (content) made.textContent = content;
    return made;
  };
  const brush = element("rect", { class: "brush", y: 0, height, width: 0 });
  overview.append(brush);

  // The days from `first` up to `end`, in bars of as many days as it takes for them to be seen.
  const draw = (first, end) => {
    const days = Math.round((end - first) / DAY);
    const each = Math.ceil(days / 220);
    const sums = Array(Math.ceil(days / each)).fill(0);
    for (const [day, number] of Object.entries(figures.activity)) {
      const at = Math.round((Date.parse(day) - first) / DAY);
      if (at >= 0 && at < days) sums[Math.floor(at / each)] += number;
    }
    const most = Math.max(1, ...sums);
    const sorted = sums.filter(Boolean).sort((a, b) => a - b);
    const log = most > 40 * (sorted[Math.floor(sorted.length / 2)] || 1);
    const decades = Math.ceil(Math.log10(most)) + 0.5;
    const tall = 150, top = 12, base = tall - 24;
    const up = (value) => !value ? 0 : (base - top) * (log ? (Math.log10(value) + 0.5) / decades : value / most);
    const svg = element("svg", { viewBox: `0 0 ${width} ${tall}`, role: "img", "aria-label": `Activity from ${iso(first)} to ${iso(end - DAY)}` });
    const ticks = log ? Array.from({ length: Math.round(decades + 0.5) }, (_, power) => 10 ** power) : [most];
    for (const tick of ticks) {
      svg.append(element("line", { class: "rule", x1: left, x2: right, y1: base - up(tick), y2: base - up(tick) }));
      svg.append(element("text", { x: left - 8, y: base - up(tick) + 4, "text-anchor": "end" }, grouped(tick)));
    }
    const step = (right - left) / sums.length;
    const dates = Math.min(sums.length, 8);
    sums.forEach((value, number) => {
      const from = first + number * each * DAY;
      const to = Math.min(from + (each - 1) * DAY, end - DAY);
      if (value) {
        const bar = element("rect", { class: "bar", x: left + number * step, width: Math.max(step - Math.min(1, step * 0.15), 0.5), y: base - Math.max(up(value), 1.5), height: Math.max(up(value), 1.5) });
        bar.append(element("title", {}, `${from === to ? iso(from) : `${iso(from)} to ${iso(to)}`}: ${grouped(value)}`));
        svg.append(bar);
      }
      if (number % Math.ceil(sums.length / dates) === 0 && number < sums.length * 0.95) {
        svg.append(element("line", { class: "axis", x1: left + number * step, x2: left + number * step, y1: base, y2: base + 5 }));
        svg.append(element("text", { x: left + number * step + 4, y: base + 16 }, iso(from)));
      }
    });
    svg.append(element("line", { class: "axis", x1: left, x2: right, y1: base, y2: base }));
    document.getElementById("detail").replaceChildren(svg);
    const total = sums.reduce((sum, value) => sum + value, 0);
    document.getElementById("recent-caption").textContent =
      `${iso(first)} to ${iso(end - DAY)}, ${grouped(total)} moments, a bar for each ${each === 1 ? "day" : `${each} days`}${log ? "; logarithmic scale" : ""}`;
  };

  const barAt = (event) => {
    const box = overview.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * width;
    return Math.min(bars - 1, Math.max(0, Math.floor((x - left) / (right - left) * bars)));
  };
  let held = null;
  const choose = (one, other) => {
    const [from, to] = [Math.min(one, other), Math.max(one, other) + 1];
    const step = (right - left) / bars;
    brush.setAttribute("x", left + from * step);
    brush.setAttribute("width", (to - from) * step);
    draw(starts[from], starts[to]);
  };
  overview.addEventListener("pointerdown", (event) => {
    held = barAt(event);
    overview.setPointerCapture(event.pointerId);
    choose(held, held);
  });
  overview.addEventListener("pointermove", (event) => {
    if (held !== null) choose(held, barAt(event));
  });
  overview.addEventListener("pointerup", () => { held = null; });
  overview.addEventListener("pointercancel", () => { held = null; });
})();
