"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const [LINE, VERDICT, RULE, KIND, SUITE, TRANSFORM, LAWS, ITEMS, TIME, DETAIL] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
  const PAGE = 100;
  const byId = (id) => document.getElementById(id);
  const list = byId("list"), more = byId("more"), search = byId("search");
  const verdict = byId("verdict"), key = byId("key"), value = byId("value"), chips = byId("chips");
  let chosen = [];  // [field, value] that every shown case has
  let found = [], shown = 0;

  const element = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, text] of Object.entries(attributes)) made.setAttribute(name, text);
    made.append(...children);
    return made;
  };
  const word = (name) => data.words[name] || name;
  const plain = (name) => name.replaceAll("_", " ");

  // What each case is searched by, once.
  const haystack = data.cases.map((c) => {
    const detail = data.details[c[DETAIL]];
    const message = detail ? data.texts[detail.message] : "";
    return [c[LINE], data.rules[c[RULE]], data.kinds[c[KIND]], data.suites[c[SUITE]], message].join("\n").toLowerCase();
  });
  const causes = data.causes.map((members) => new Set(members));
  const values = {};  // parameter -> value -> set of item numbers that have it
  data.items.forEach(([name, own], number) => {
    for (const one of own) ((values[name] ||= {})[one] ||= new Set()).add(number);
  });
  const rules = new Map(data.rules.map((name, number) => [name, number]));

  const tests = {
    verdict: (text) => text === "unexpected" ? (c) => !data.good[c[VERDICT]] : (c) => data.verdicts[c[VERDICT]] === text,
    law: (text) => { const number = rules.get(text); return (c) => data.laws[c[LAWS]].includes(number); },
    transform: (text) => (c) => data.transforms[c[TRANSFORM]] === text,
    cause: (text) => (c, number) => causes[Number(text)].has(number),
  };
  const test = ([field, text]) => {
    if (field in tests) return tests[field](text);
    const items = (values[field] || {})[text] || new Set();
    return (c) => c[ITEMS].some((number) => items.has(number));
  };

  const apply = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const conditions = [...chosen];
    if (verdict.value) conditions.push(["verdict", verdict.value]);
    if (key.value && value.value) conditions.push([key.value, value.value]);
    const checks = conditions.map(test);
    found = [];
    data.cases.forEach((c, number) => {
      if (words.every((one) => haystack[number].includes(one)) && checks.every((check) => check(c, number))) found.push(number);
    });
    list.replaceChildren();
    shown = 0;
    showMore();
    byId("count").textContent = `${found.length.toLocaleString("en")} of ${data.cases.length.toLocaleString("en")} cases`;
  };
  const showMore = () => {
    const next = found.slice(shown, shown + PAGE);
    list.append(...next.map(row));
    shown += next.length;
    more.hidden = shown >= found.length;
  };

  const tagClass = (c) => data.verdicts[c[VERDICT]] === "pass" ? "good" : data.good[c[VERDICT]] ? "known" : "bad2";
  const row = (number) => {
    const c = data.cases[number];
    const what = data.kinds[c[KIND]] || plain(data.verdicts[c[VERDICT]]);
    const button = element("button", { type: "button", class: "row", "aria-expanded": "false" },
      element("span", { class: `tag ${tagClass(c)}` }, what),
      element("span", { class: "line" }, c[LINE]),
      element("span", { class: "soft" }, data.rules[c[RULE]]));
    const item = element("li", {}, button);
    button.addEventListener("click", () => toggle(item, button, number));
    return item;
  };
  const toggle = (item, button, number) => {
    const open = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!open));
    if (open) item.lastChild.remove();
    else item.append(detail(number));
  };

  const detail = (number) => {
    const c = data.cases[number], d = data.details[c[DETAIL]] || {};
    const box = element("div", { class: "detail" });
    const message = d.message === undefined ? "" : data.texts[d.message];
    if (d.expectation) box.append(element("p", {}, `Expected: ${d.expectation}`));
    if (message) box.append(element("pre", { class: "wrap", tabindex: "0", "aria-label": "message" }, message));
    if (d.positions) box.append(maps(d.positions));
    if (d.also && d.also.length) box.append(element("p", {}, `Also: ${d.also.join("; ")}`));
    if (d.reduced) box.append(element("p", {}, "Reduced to: ", element("code", {}, d.reduced)));
    box.append(element("p", { class: "soft" }, "Run it again:"), code(`pytest --case '${c[LINE].replaceAll("'", "'\\''")}'`, "command"));
    if (d.source) box.append(element("p", { class: "soft" }, `Reproducer, ${d.reproducer}:`), code(d.source, "reproducer"));
    else if (d.reproducer) box.append(element("p", {}, `Reproducer: ${d.reproducer}`));
    if (d.tail) box.append(element("p", { class: "soft" }, "End of the log:"), element("pre", { tabindex: "0", "aria-label": "log" }, d.tail));
    const facts = element("dl");
    const fact = (name, text) => { if (text) facts.append(element("dt", {}, name), element("dd", {}, text)); };
    fact("verdict", plain(data.verdicts[c[VERDICT]]));
    fact("law", data.rules[c[RULE]]);
    fact("suite", data.suites[c[SUITE]]);
    for (const item of c[ITEMS]) {
      const [name, own] = data.items[item];
      if (own.join() !== "none") fact(word(name), own.join(", "));
    }
    fact("time", `${c[TIME]} ms${d.worker ? `, worker ${d.worker}` : ""}${d.time ? `, ${d.time}` : ""}`);
    fact("log", d.log);
    box.append(facts);
    return box;
  };
  const code = (text, label) => {
    const pre = element("pre", { tabindex: "0", "aria-label": label }, text);
    const button = element("button", { type: "button" }, "Copy");
    button.addEventListener("click", async () => { button.textContent = await copy(text, pre) ? "Copied" : "Selected"; });
    return element("div", { class: "code" }, pre, button);
  };
  const copy = async (text, pre) => {
    try { await navigator.clipboard.writeText(text); return true; } catch { /* not allowed here: select it instead */ }
    getSelection().selectAllChildren(pre);
    return false;
  };

  // The picture of who received from whom: one grid of positions for each wrong receiver.
  const svg = (tag, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, one] of Object.entries(attributes)) made.setAttribute(name, one);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const maps = ({ axes, receivers }) => element("div", {},
    element("p", { class: "soft" }, "Framed: who received. Green: rightly from; red: wrongly from; dashed: should also have been from."),
    element("div", { class: "maps" }, ...receivers.map((one) => map(axes, one))));
  const map = (axes, receiver) => {
    const cell = 58, gap = 12, rows = axes.length > 1 ? axes[0][1] : 1;
    const inner = axes.length > 1 ? axes.slice(1) : axes;
    const columns = inner.reduce((total, [, size]) => total * size, 1);
    const at = (position) => {
      const rest = axes.length > 1 ? position.slice(1) : position;
      return [rest.reduce((sum, one, k) => sum * inner[k][1] + one, 0), axes.length > 1 ? position[0] : 0];
    };
    const middle = (position) => at(position).map((one) => gap + one * (cell + gap) + cell / 2);
    const name = (position) => axes.map(([axis], k) => `${axis}=${position[k]}`).join(" ");
    const id = (source) => JSON.stringify([source[0], source[1], source[2]]);
    const got = new Map(receiver.got.map((one) => [id(one), one])), want = new Map(receiver.want.map((one) => [id(one), one]));
    const wide = gap + columns * (cell + gap), high = gap + rows * (cell + gap);
    const caption = `${receiver.at ? name(receiver.at) : "some position"}, element [${receiver.element}]: ` +
      `received ${receiver.got.map(say).join(", ") || "nothing"}; should be ${receiver.want.map(say).join(", ") || "nothing"}`;
    function say([position, times, elementAt]) { return `${times === "1" ? "" : times + " x "}${name(position)} [${elementAt}]`; }
    const picture = svg("svg", { viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, role: "img", "aria-label": caption });
    const total = axes.reduce((product, [, size]) => product * size, 1);
    for (let k = 0, rest = 0; k < total; k += 1) {
      const position = axes.map(() => 0);
      rest = k;
      for (let axis = axes.length - 1; axis >= 0; axis -= 1) { position[axis] = rest % axes[axis][1]; rest = Math.floor(rest / axes[axis][1]); }
      const [x, y] = middle(position);
      const here = (sources) => [...sources.entries()].filter(([, one]) => name(one[0]) === name(position));
      const extra = here(got).some(([one]) => !want.has(one)), missing = here(want).some(([one]) => !got.has(one));
      const kind = extra ? "extra" : missing ? "missing" : here(got).length ? "both" : "cell";
      picture.append(svg("rect", { x: x - cell / 2, y: y - cell / 2, width: cell, height: cell, rx: 8, class: `map-${kind}` }));
      axes.forEach(([axis], line) => picture.append(svg("text", { x, y: y + 4 + 13 * (line - (axes.length - 1) / 2), class: "map-text" }, `${axis}=${position[line]}`)));
    }
    if (receiver.at) {
      const [x, y] = middle(receiver.at);
      picture.append(svg("rect", { x: x - cell / 2 - 3, y: y - cell / 2 - 3, width: cell + 6, height: cell + 6, rx: 10, class: "map-ring" }));
      for (const [one, source] of new Map([...want, ...got])) {
        const kind = got.has(one) ? want.has(one) ? "both" : "extra" : "missing", [u, v] = middle(source[0]);
        if (u !== x || v !== y) picture.append(arrow(u, v, x, y, cell / 2, kind));
      }
    }
    return element("figure", {}, picture, element("figcaption", {}, caption));
  };
  const arrow = (u, v, x, y, radius, kind) => {
    const length = Math.hypot(x - u, y - v), dx = (x - u) / length, dy = (y - v) / length;
    const bend = Math.min(34, length / 4), tip = [x - dx * radius * 0.8, y - dy * radius * 0.8];
    const start = [u + dx * radius * 0.6, v + dy * radius * 0.6];
    const control = [(u + x) / 2 - dy * bend, (v + y) / 2 + dx * bend];
    const head = [-0.5, 0.5].map((turn) => `M${tip} l${[-8 * (dx * Math.cos(turn) - dy * Math.sin(turn)), -8 * (dx * Math.sin(turn) + dy * Math.cos(turn))]}`);
    return svg("path", { d: `M${start} Q${control} ${tip} ${head.join(" ")}`, class: `arrow-${kind}` });
  };

  // Choosing
  const choose = (conditions) => {
    chosen = conditions;
    search.value = verdict.value = key.value = "";
    fillValues();
    showChips();
    apply();
    byId("cases").scrollIntoView();
  };
  const showChips = () => {
    chips.replaceChildren(...chosen.map(([field, text], number) => {
      const label = field === "cause" ? `cause ${Number(text) + 1}` : `${word(field)} = ${plain(text)}`;
      const chip = element("button", { type: "button", title: "take this away" }, `${label} ×`);
      chip.addEventListener("click", () => { chosen.splice(number, 1); showChips(); apply(); });
      return chip;
    }));
  };
  const options = (select, names, first) => select.replaceChildren(...first, ...names.map(([text, shownAs]) => element("option", { value: text }, shownAs)));
  const any = () => element("option", { value: "" }, "any");
  const fillValues = () => {
    const own = Object.keys(values[key.value] || {}).sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    options(value, own.map((text) => [text, text]), [any()]);
    value.disabled = !key.value;
  };
  const open = (line) => {
    const number = data.cases.findIndex((c) => c[LINE] === line);
    if (number < 0) return;
    choose([]);
    search.value = line;
    apply();
    const place = found.indexOf(number);
    while (place >= shown && !more.hidden) showMore();
    const button = list.children[place] && list.children[place].querySelector(".row");
    if (button) { button.click(); button.focus(); }
  };

  const present = [...new Set(data.cases.map((c) => data.verdicts[c[VERDICT]]))];
  verdict.append(...present.map((text) => element("option", { value: text }, plain(text))));
  options(key, Object.keys(values).sort().map((text) => [text, word(text)]), [any()]);
  let waiting = 0;
  search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(apply, 80); });
  verdict.addEventListener("change", apply);
  key.addEventListener("change", () => { fillValues(); apply(); });
  value.addEventListener("change", apply);
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filters").addEventListener("reset", () => setTimeout(() => { chosen = []; fillValues(); showChips(); apply(); }));
  more.addEventListener("click", showMore);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const { verdict: one, cause, open: line, at } = button.dataset;
    if (one) choose([["verdict", one]]);
    else if (cause) choose([["cause", cause]]);
    else if (line) open(line);
    else if (at) {
      const table = button.closest("table");
      const down = button.closest("tr").querySelector("th").textContent;
      const across = table.querySelectorAll("thead th")[Number(at)].textContent;
      choose([[table.dataset.down, down], [table.dataset.across, across]]);
    }
  });
  const follow = () => { if (location.hash.startsWith("#case=")) open(decodeURIComponent(location.hash.slice(6))); };
  addEventListener("hashchange", follow);
  apply();
  follow();
})();
