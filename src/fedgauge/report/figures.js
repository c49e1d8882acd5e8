"use strict";
// What all pages are made of: elements, tables that can be saved, figures that can be saved.
const parts = (() => {
  const find = (id) => document.getElementById(id);

  // Elements

  const make = (name, attributes = {}, ...inside) => fill(document.createElement(name), attributes, inside);
  const draw = (name, attributes = {}, ...inside) =>
    fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, inside);
  function fill(element, attributes, inside) {
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...inside);
    return element;
  }
  function put(id, ...inside) {
    find(id).replaceChildren(...inside);
  }

  // Numbers, as the library prints them: they come rounded

  const share = (value) => (value === null ? "undefined" : value.toFixed(4));
  const count = (value) => value.toLocaleString("en-US");
  const percent = (value) => `${(100 * value).toFixed(1)}%`;
  const between = (ends) => (ends ? span(...ends) : "");
  const span = (low, high) => (low === null || low === undefined ? "" : `${low} to ${high}`);

  // Tables

  const kind = (text) => (text.length > 40 ? { class: "text" } : {});
  function table(caption, columns, rows, name) {
    const head = make("tr", {}, ...columns.map((each) => make("th", { scope: "col" }, each)));
    const body = rows.map(([first, ...others]) =>
      make("tr", {}, make("th", { scope: "row", ...kind(first) }, first), ...others.map((each) => make("td", kind(each), each))),
    );
    const whole = make("table", { "data-csv": name }, make("caption", {}, caption), make("thead", {}, head), make("tbody", {}, ...body));
    return make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption }, whole);
  }
  // A cell that begins like a formula would be run by a spreadsheet, which skips blanks and takes
  // full-width signs for the usual ones; numbers and intervals are none.
  const plain = /^[-+][\d.,]+(e[-+]?\d+)?$|^-[\d.,]+( to -?[\d.,]+| \(-?[\d.,]+ to -?[\d.,]+\))$/;
  const guarded = (text) => (/^[\s\p{C}]*[=+\-@\u2212]/u.test(text.normalize("NFKC")) && !plain.test(text) ? `'${text}` : text);
  const quoted = (text) => `"${guarded(text).replace(/"/g, '""')}"`;
  function csv(element) {
    const rows = [...element.querySelectorAll("tr")];
    return rows.map((row) => [...row.cells].map((cell) => quoted(cell.textContent)).join(",")).join("\r\n") + "\r\n";
  }

  // Files

  function save(name, blob) {
    const link = make("a", { download: name, href: URL.createObjectURL(blob) });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
  const looks = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "paint-order", "font-size", "font-family"];
  function standalone(svg) {
    const copy = svg.cloneNode(true);
    const [old, fresh] = [svg, copy].map((each) => [...each.querySelectorAll("*")]);
    old.forEach((each, place) => {
      const style = getComputedStyle(each);
      for (const look of looks) fresh[place].setAttribute(look, style.getPropertyValue(look));
    });
    const [, , width, height] = svg.getAttribute("viewBox").split(" ");
    const paper = draw("rect", { width, height, fill: getComputedStyle(document.body).backgroundColor });
    copy.prepend(paper);
    fill(copy, { xmlns: "http://www.w3.org/2000/svg", width, height }, []);
    return { text: new XMLSerializer().serializeToString(copy), width: +width, height: +height };
  }
  function savePng(svg, name) {
    const { text, width, height } = standalone(svg);
    const image = new Image();
    image.onload = () => {
      const canvas = make("canvas", { width: 3 * width, height: 3 * height });
      canvas.getContext("2d").drawImage(image, 0, 0, 3 * width, 3 * height);
      canvas.toBlob((blob) => save(`${name}.png`, blob));
    };
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  }
  function button(title, label, press) {
    const made = make("button", { type: "button", "aria-label": label }, title);
    made.addEventListener("click", press);
    return made;
  }
  function addCsvButtons(root) {
    for (const each of root.querySelectorAll("table[data-csv]")) {
      if (each.closest("figure") || each.parentElement.nextElementSibling?.classList.contains("csv")) continue;
      const caption = each.caption.textContent;
      const name = `${each.dataset.csv}.csv`;
      const press = () => save(name, new Blob([csv(each)], { type: "text/csv" }));
      each.parentElement.after(make("div", { class: "tools csv" }, button("CSV", `Save as CSV: ${caption}`, press)));
    }
  }

  // Figures

  const square = { width: 400, height: 340, left: 52, right: 12, top: 10, bottom: 46 };
  const inside = (size) => ({ width: size.width - size.left - size.right, height: size.height - size.top - size.bottom });
  const tenths = (low, high) => {
    const step = 10 ** Math.floor(Math.log10((high - low) / 2));
    const by = [1, 2, 5, 10].map((each) => each * step).find((each) => (high - low) / each <= 6);
    const first = Math.ceil(low / by - 1e-9);
    const last = Math.floor(high / by + 1e-9);
    return Array.from({ length: last - first + 1 }, (_, place) => {
      const at = (first + place) * by;
      return [at, String(+at.toPrecision(6))];
    });
  };
  // `size` is in the units of the picture; `ticks` are places and texts, where even steps are not meant.
  function axes([x, y], labels, ticks, size = square) {
    const inner = inside(size);
    const place = {
      x: (value) => size.left + (inner.width * (value - x[0])) / (x[1] - x[0]),
      y: (value) => size.top + (inner.height * (y[1] - value)) / (y[1] - y[0]),
    };
    const svg = draw("svg", { viewBox: `0 0 ${size.width} ${size.height}` });
    const bottom = size.top + inner.height;
    for (const [at, text] of ticks?.x ?? tenths(...x)) {
      const px = place.x(at);
      svg.append(draw("path", { class: "grid", d: `M${px} ${size.top}V${bottom}` }));
      svg.append(draw("text", { x: px, y: bottom + 16, "text-anchor": "middle" }, text));
    }
    for (const [at, text] of ticks?.y ?? tenths(...y)) {
      const py = place.y(at);
      svg.append(draw("path", { class: "grid", d: `M${size.left} ${py}H${size.left + inner.width}` }));
      svg.append(draw("text", { x: size.left - 6, y: py + 4, "text-anchor": "end" }, text));
    }
    svg.append(draw("path", { class: "axis", d: `M${size.left} ${size.top}V${bottom}H${size.left + inner.width}` }));
    svg.append(draw("text", { x: size.left + inner.width / 2, y: size.height - 8, "text-anchor": "middle" }, labels[0]));
    const turned = `translate(13 ${size.top + inner.height / 2}) rotate(-90)`;
    svg.append(draw("text", { transform: turned, "text-anchor": "middle" }, labels[1]));
    return { svg, place };
  }
  let clips = 0;
  function clipped(svg, size = square) {
    const { width, height } = inside(size);
    const id = `clip-${(clips += 1)}`;
    svg.append(draw("clipPath", { id }, draw("rect", { x: size.left, y: size.top, width, height })));
    const held = draw("g", { "clip-path": `url(#${id})` });
    svg.append(held);
    return held;
  }
  const path = (place, [xs, ys]) => xs.map((x, i) => `${i ? "L" : "M"}${place.x(x).toFixed(1)} ${place.y(ys[i]).toFixed(1)}`).join("");
  function band(place, low, high) {
    const back = [high[0].slice().reverse(), high[1].slice().reverse()];
    return `${path(place, low)}${path(place, back).replace("M", "L")}Z`;
  }
  function figure(id, title, note, svg, rows) {
    fill(svg, { role: "img", "aria-label": `${title}. ${note}` }, []);
    const told = table(title, rows[0], rows.slice(1), id);
    const tools = make("div", { class: "tools" },
      button("CSV", `Save as CSV: ${title}`, () => save(`${id}.csv`, new Blob([csv(told.firstChild)], { type: "text/csv" }))),
      button("SVG", `Save as SVG: ${title}`, () => save(`${id}.svg`, new Blob([standalone(svg).text], { type: "image/svg+xml" }))),
      button("PNG", `Save as PNG: ${title}`, () => savePng(svg, id)));
    const folded = make("details", {}, make("summary", {}, `Table: ${title}`), told);
    const caption = make("figcaption", {}, title, make("p", { class: "small" }, note));
    put(id, make("figure", {}, caption, svg, tools, folded));
  }

  // What is folded is printed unfolded, but for tables of figures.
  let unfolded = [];
  addEventListener("beforeprint", () => {
    unfolded = [...document.querySelectorAll("details:not([open])")].filter((each) => !each.closest("figure"));
    for (const each of unfolded) each.open = true;
  });
  addEventListener("afterprint", () => unfolded.forEach((each) => (each.open = false)));

  return { find, make, draw, fill, put, share, count, percent, between, span, table, quoted, save, button, addCsvButtons, square, tenths, axes, clipped, path, band, figure };
})();
