// Runs in the assembled book, laid out as on paper: makes what is too wide as small as it must be.
// Returns what still sticks out.
() => {
  const inner = (node) => { // the width of what stands in it, whatever its own box
    const range = document.createRange();
    range.selectNodeContents(node);
    return range.getBoundingClientRect().width;
  };
  // A table that would have to be much smaller may break its code instead.
  for (const table of document.querySelectorAll("table"))
    if (table.offsetWidth > 1.15 * table.parentElement.clientWidth) table.classList.add("tp-tight");
  // All is measured before anything changes: every change lays out the whole book again.
  const smaller = [];
  for (const box of document.querySelectorAll(".math-display")) {
    const math = box.querySelector("math"), number = box.querySelector(".eqno");
    const room = box.clientWidth - (number ? number.offsetWidth + 16 : 0);
    const need = inner(math);
    if (need > room) smaller.push([math, room / need]);
  }
  for (const table of document.querySelectorAll("table")) {
    const room = table.parentElement.clientWidth;
    if (table.offsetWidth > room + 1) smaller.push([table, room / table.offsetWidth]);
  }
  for (const [node, share] of smaller) {
    const size = parseFloat(getComputedStyle(node).fontSize);
    node.style.fontSize = `${(0.98 * share * size).toFixed(2)}px`;
  }
  const edge = document.body.getBoundingClientRect().right + 1;
  const out = [];
  for (const node of document.querySelectorAll("math, pre, table, img, svg, p, li, h1, h2, h3, h4, dd, dt")) {
    if (node.closest("svg") && node.tagName !== "svg") continue;
    const { right, width } = node.getBoundingClientRect();
    if (width && Math.max(right, node.scrollWidth > node.clientWidth + 1 && node.clientWidth ? right + node.scrollWidth - node.clientWidth : 0) > edge)
      out.push(`${node.closest(".tp-page")?.id}: <${node.localName}> ${node.textContent.trim().slice(0, 60)} (by ${Math.round(right - edge)} px)`);
  }
  return out;
}
