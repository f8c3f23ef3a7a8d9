// The pages of `collegium watch`: what the server tells becomes text and lines. Names of sites and texts of refusals are
// only ever put in as text, never as mark-up.
"use strict";

(() => {
  const $ = (id) => document.getElementById(id);
  const { format } = collegium;
  const run = document.body.dataset.run;
  const put = (id, text) => { const place = $(id); if (place && place.textContent !== text) place.textContent = text; };
  const show = (place, text) => { place.textContent = text; place.hidden = !text; };
  const kinds = { running: "good live", finished: "good", failed: "bad", killed: "bad", interrupted: "warn", waiting: "warn" };
  const sum = (text, n) => `${format.number(n)} ${text}${n === 1 ? "" : "s"}`;
  let skew = 0;  // this browser's clock against the server's

  // At most one drawing per 80 ms, and none while nobody looks.
  function drawer(draw) {
    let asked = false, last = 0;
    return function ask() {
      if (asked) return;
      asked = true;
      setTimeout(() => requestAnimationFrame(() => { asked = false; last = performance.now(); draw(); }),
        Math.max(0, 80 - (performance.now() - last)));
    };
  }

  // Tables that are filled row by row, and sort by the column that was pressed.
  function sorted(key, columns) {
    const body = $(`rows-${key}`), rows = new Map();
    let by = null, down = false;
    const head = [...document.querySelectorAll(`#rows-${key}`)][0].closest("table").querySelectorAll("th");
    head.forEach((cell) => {
      cell.querySelector("button").addEventListener("click", (event) => {
        const pressed = event.currentTarget.dataset.key;
        down = by === pressed ? !down : columns.find((each) => each.key === pressed).numeric === true;
        by = pressed;
        head.forEach((each) => each.removeAttribute("aria-sort"));
        cell.setAttribute("aria-sort", down ? "descending" : "ascending");
        order();
      });
    });
    function order() {
      if (!by) return;
      const value = columns.find((each) => each.key === by).value;
      const known = [...rows.values()].sort((a, b) => {
        const [x, y] = [value(a.row), value(b.row)];
        if (x === null || x === undefined) return 1;
        if (y === null || y === undefined) return -1;
        return (x < y ? -1 : x > y ? 1 : a.index - b.index) * (down ? -1 : 1);
      });
      if (known.some((each, i) => body.children[i] !== each.line)) body.append(...known.map((each) => each.line));
    }
    function update(index, row) {
      let known = rows.get(index);
      if (!known) {
        const line = document.createElement("tr");
        const cells = columns.map((column, i) => {
          const cell = document.createElement(i ? "td" : "th");
          if (!i) cell.scope = "row";
          if (column.numeric) cell.className = "n";
          line.append(cell);
          return cell;
        });
        known = { index: Number(index), line, cells, said: [] };
        rows.set(index, known);
        body.append(line);
      }
      known.row = row;
      columns.forEach((column, i) => {
        const text = column.text(row);
        if (known.said[i] === text) return;
        known.said[i] = text;
        if (column.draw) column.draw(known.cells[i], row, text);
        else known.cells[i].textContent = text;
      });
    }
    return { update, order, clear() { rows.clear(); body.replaceChildren(); }, size: () => rows.size, rows };
  }

  function badge(cell, kind, text) {
    const mark = document.createElement("span");
    mark.className = `state ${kind}`;
    mark.textContent = text;
    cell.replaceChildren(...(text ? [mark] : []));
  }

  function connection(state) {
    const lost = state === "lost";
    show($("link"), lost ? "The connection to the console is lost. This page tries to get it back; start `collegium watch` again if its process has ended." : "");
    document.body.classList.toggle("lost", lost);
    if (lost) collegium.say("The connection is lost.");
  }

  if (run === "all") several(); else if (run !== undefined) one();

  function several() {
    const chart = collegium.chart("compare", { height: 320 });
    const link = (cell, row, text) => {
      const anchor = document.createElement("a");
      anchor.href = `/run/${row.index}`;
      anchor.textContent = text;
      cell.replaceChildren(anchor);
    };
    const table = sorted("runs", [
      { key: "name", value: (r) => r.name, text: (r) => r.name, draw: link },
      { key: "state", value: (r) => r.word, text: (r) => r.word, draw: (cell, row, text) => badge(cell, kinds[row.state], text) },
      { key: "algorithm", value: (r) => r.algorithm, text: (r) => r.algorithm },
      { key: "done", numeric: true, value: (r) => r.done, text: (r) => (r.of ? `${format.number(r.done)} of ${format.number(r.of)}` : "-") },
      { key: "mean", numeric: true, value: (r) => r.mean, text: (r) => format.percent(r.mean) },
      { key: "spread", numeric: true, value: (r) => r.low, text: (r) => (r.low === null ? "-" : `${format.percent(r.low)} to ${format.percent(r.high)}`) },
      { key: "up", numeric: true, value: (r) => r.up, text: (r) => format.bytes(r.up) },
      { key: "failures", numeric: true, value: (r) => r.failures, text: (r) => format.number(r.failures) },
      { key: "spent", numeric: true, value: (r) => r.spent, text: (r) => format.seconds(r.spent) },
    ]);
    let told = null;
    const draw = drawer(() => {
      told.heads.forEach((head, index) => table.update(index, { ...head, index }));
      table.order();
      const known = told.heads.map((head, i) => [head, i]).filter(([, i]) => told.lines[i]);
      chart.set(
        known.map(([head, i]) => ({ name: head.name, kind: i >= 12 ? "dash" : "line", colour: i })),
        [told.x, ...known.map(([, i]) => told.lines[i])],
        { unit: format.points, label: `Mean accuracy: ${known.map(([head]) => `${head.name} ${format.percent(head.mean)}`).join(", ")}` },
      );
    });
    collegium.listen("/events", { news(news) { told = news; draw(); } }, connection);
  }

  function one() {
    let head = null, curves = null, zoom = null, changed = new Set(), spokenState = null, spoken = 0, stream = null;
    const fresh = { sites: {}, log: [] };
    const charts = {
      accuracy: collegium.chart("accuracy", { height: 340, onRange: look }),
      consensus: collegium.chart("consensus"),
      changes: collegium.chart("changes"),
      bytes: collegium.chart("bytes"),
      seconds: collegium.chart("seconds"),
    };
    const column = { name: 0, stands: 1, kind: 2, accuracy: 3, first: 4, up: 5, down: 6, out: 7, safe: 8, failures: 9, heard: 10, version: 11, samples: 12, days: 13 };
    const at = (name) => (row) => row[column[name]];
    const gain = (row) => (row[3] === null || row[4] === null ? null : row[3] - row[4]);
    const table = sorted("sites", [
      { key: "name", value: at("name"), text: at("name") },
      { key: "stands", value: at("stands"), text: at("stands"), draw: (cell, row, text) => badge(cell, row[2], text) },
      { key: "accuracy", numeric: true, value: at("accuracy"), text: (r) => format.percent(r[3]) },
      { key: "gain", numeric: true, value: gain, text: (r) => (gain(r) === null ? "-" : `${gain(r) >= 0 ? "+" : "\u2212"}${Math.abs(100 * gain(r)).toFixed(1)}`) },
      { key: "up", numeric: true, value: at("up"), text: (r) => format.bytes(r[5]) },
      { key: "down", numeric: true, value: at("down"), text: (r) => format.bytes(r[6]) },
      { key: "out", numeric: true, value: at("out"), text: (r) => (r[8] ? `${format.number(r[7])} (${format.number(r[8])} protected)` : format.number(r[7])) },
      { key: "failures", numeric: true, value: at("failures"), text: (r) => format.number(r[9]), draw: (cell, row, text) => { cell.textContent = text; cell.classList.toggle("bad", row[9] > 0); } },
      { key: "heard", numeric: true, value: at("heard"), text: (r) => (r[10] ? format.time(r[10]) : "-") },
      { key: "version", value: at("version"), text: (r) => r[11] ?? "-" },
      { key: "certificate", numeric: true, value: at("days"), text: (r) => (r[13] === null ? "-" : sum("day", r[13])),
        draw: (cell, row, text) => { cell.textContent = text; cell.classList.toggle("bad", row[13] !== null && row[13] < 30); } },
    ]);

    // What the server makes is asked for when the run's state has changed, and at first.
    function drawHead() {
      const f = format, live = head.state === "running";
      $("state").className = `state ${kinds[head.state]}`;
      put("state", head.word);
      document.title = `${head.of ? `${head.done}/${head.of} ` : ""}${head.name}`;
      const method = head.algorithm.split("(")[0];
      put("about", [method, head.study && `study ${head.study}`, head.sites && sum("site", head.sites), head.public && `${f.number(head.public)} public cases`,
        head.process && `process ${head.process}`, head.version && `Collegium ${head.version}`].filter(Boolean).join(" \u00b7 "));
      $("about").title = head.algorithm;
      show($("certificates"), head.certificates[0]);
      $("certificates").className = head.certificates[1] ? "notice bad" : "meta";
      show($("why"), head.why);
      $("why").className = head.state === "interrupted" || head.state === "waiting" ? "notice" : "notice bad";
      $("progress").max = head.of || 1;
      $("progress").value = head.done;
      put("t-round", head.of ? `${f.number(head.done)} of ${f.number(head.of)}` : f.number(head.done));
      const busy = Object.entries(head.busy).map(([step, n]) => `${sum("site", n)}: ${step}`).join("; ");
      put("n-round", live ? busy || "rounds that are over" : "rounds that are over");
      put("t-accuracy", f.percent(head.mean));
      put("n-accuracy", head.low === null ? "no test set, or no round yet" : `${f.percent(head.low)} to ${f.percent(head.high)}; first round ${f.percent(head.first)}`);
      put("t-sent", f.bytes(head.up));
      put("n-sent", `${sum("release", head.releases)}; ${f.bytes(head.down)} received`);
      put("t-protected", head.releases ? `${f.number(head.safe)} of ${f.number(head.releases)}` : "-");
      put("n-protected", head.releases ? "by differential privacy" : "nothing was released");
      put("t-failures", f.number(head.failures));
      put("n-failures", head.failures ? "see below what they mean" : "every site has answered");
      $("tile-failures").classList.toggle("bad", head.failures > 0);
      for (const name of ["heard", "version", "certificate"]) $(`sites-${name}`).closest("table").classList.toggle("local", !head.federation);
      drawTime();
      const state = `${head.word}${head.why ? `. ${head.why}` : ""}`;
      if (state !== spokenState) {
        changed.add("actions").add("privacy-now").add("ledger-now");
        spokenState = state;
        collegium.say(`The run is ${state}`);
      } else if (live && Date.now() - spoken > 60000) {
        spoken = Date.now();
        collegium.say(`${head.done} of ${head.of} rounds, mean accuracy ${f.percent(head.mean)}`);
      }
    }

    function drawTime() {
      if (!head) return;
      const live = head.state === "running" && head.started;
      const beyond = live ? Math.max(0, Date.now() / 1000 + skew - head.started) : null;
      put("t-time", format.seconds(live ? Math.max(beyond, head.spent) : head.spent));
      put("n-time", live && head.left !== null && head.done ? `about ${format.seconds(head.left)} left` : head.started ? `began ${format.time(head.started)}` : "");
    }
    setInterval(drawTime, 1000);

    function merge(news) {
      if (!curves || news.from === 0 || curves.metric !== news.metric || news.lines.length !== curves.lines.length) { curves = news; return; }
      const join = (old, more) => (old && more ? [...old.slice(0, news.from), ...more] : more);
      for (const name of ["x", "mean", "low", "high", "global", "consensus_size", "consensus_quality", "consensus_changed", "up", "down", "wall"])
        curves[name] = join(curves[name], news[name]);
      curves.y = curves.y.map((old, i) => join(old, news.y[i]));
      curves.stride = news.stride;
    }

    const siteName = (index) => table.rows.get(String(index))?.row[0] ?? `site ${index}`;

    function drawCurves() {
      const c = zoom ?? curves;
      if (!c) return;
      const unit = c.share ? format.points : format.plain, few = c.lines.length <= 12, sites = c.lines.length;
      const lines = [], data = [c.x];
      if (sites && !few) {
        lines.push({ name: "best", kind: "high" }, { name: "worst", kind: "low" });
        data.push(c.high, c.low);
      }
      c.lines.forEach((index, i) => {
        lines.push({ name: siteName(index), kind: few ? "line" : "hair", colour: i });
        data.push(c.y[i]);
      });
      if (sites > 1) { lines.push({ name: "mean of the sites", kind: "mean" }); data.push(c.mean); }
      if (c.global) { lines.push({ name: "global model", kind: "dash", colour: 11 }); data.push(c.global); }
      const last = c.mean.at(-1);
      charts.accuracy.set(lines, data, { unit, label: `Line chart by site and round. Mean ${last === null || last === undefined ? "not known" : unit(last)} in the last round.` });
      put("caption-accuracy", [c.stride > 1 ? `Every ${c.stride}th round is drawn.` : "After each round.",
        "Drag over the chart to see a part of it more closely.",
        head && head.sites > sites && sites ? `${sites} of ${format.number(head.sites)} sites are drawn; mean and area are those of all.` : ""].join(" "));
      $("whole").hidden = zoom === null;
      const level = [];
      if (c.consensus_size) level.push(["labeled", c.consensus_size, 0]);
      if (c.consensus_quality) level.push(["right, of those labeled", c.consensus_quality, 1]);
      simple("consensus", c, level, format.points, null);
      simple("changes", c, c.consensus_changed ? [["labels", c.consensus_changed, 3]] : [], format.plain, 0);
      simple("bytes", c, [["sent by sites", c.up, 0], ["received", c.down, 1]], format.bytes, 0);
      simple("seconds", c, [["seconds", c.wall, 5]], format.plain, 0);
    }

    function simple(key, c, series, unit, floor) {
      const known = series.filter(([, values]) => values && values.some((value) => value !== null));
      charts[key].set(known.map(([name, , colour]) => ({ name, kind: "line", colour })), [c.x, ...known.map(([, values]) => values)],
        { unit, floor, label: `Line chart by round. ${known.map(([name, values]) => `${name}: ${unit(values.at(-1) ?? 0)}`).join(", ")} in the last round.` });
    }

    async function look(first, last) {
      const asked = new URLSearchParams({ metric: $("metric").value, first, end: last + 1 });
      const answer = await fetch(`/run/${run}/range?${asked}`);
      if (!answer.ok) return;
      zoom = await answer.json();
      if (zoom.x.length < 2) zoom = null;
      drawCurves();
      $("whole").focus();
      collegium.say(zoom ? `Rounds ${zoom.x[0]} to ${zoom.x.at(-1)}` : "The whole run");
    }
    $("whole").addEventListener("click", () => { zoom = null; drawCurves(); collegium.say("The whole run"); });

    function drawFailures(rows) {
      const section = $("failures");
      section.querySelector(".none").hidden = rows.length > 0;
      section.querySelector(".some").hidden = rows.length === 0;
      $("rows-failures").replaceChildren(...rows.map((row) => plainRow(row, [3, 4, 5])));
    }

    function plainRow(values, numeric) {
      const line = document.createElement("tr");
      values.forEach((value, i) => {
        const cell = document.createElement(i ? "td" : "th");
        if (!i) cell.scope = "row";
        if (numeric.includes(i)) cell.className = "n";
        cell.textContent = typeof value === "number" ? format.number(value) : String(value ?? "-");
        line.append(cell);
      });
      return line;
    }

    // Where sites keep their own ledgers: the latest releases, as the coordinator got them.
    let releases = [];
    function drawReleases() {
      const place = $("latest");
      if (!place) return;
      const box = document.createElement("div"), grid = document.createElement("table"), top = grid.createTHead().insertRow();
      for (const name of ["Site", "Round", "Step", "Kind", "Content", "SHA-256 of what was sent", "Protected"]) {
        const cell = document.createElement("th");
        cell.scope = "col";
        cell.textContent = name;
        top.append(cell);
      }
      grid.createTBody().append(...releases.map(([site, round, step, kind, bytes, hash, safe]) =>
        plainRow([site, round, step, kind, format.bytes(bytes), hash, safe ? "yes" : "no"], [1, 4])));
      box.className = "scroll";
      box.tabIndex = 0;
      box.setAttribute("role", "region");
      box.setAttribute("aria-label", "Latest releases");
      box.append(grid);
      place.replaceChildren(box);
    }
    document.addEventListener("htmx:after:swap", drawReleases);

    function drawLog() {
      const list = $("lines"), below = list.scrollTop + list.clientHeight >= list.scrollHeight - 30;
      for (const [when, text] of fresh.log) {
        const item = document.createElement("li"), time = document.createElement("time");
        time.textContent = format.time(when);
        time.dateTime = new Date(when * 1000).toISOString();
        item.append(time, text);
        list.append(item);
      }
      fresh.log = [];
      while (list.children.length > 1000) list.firstChild.remove();
      if (below) list.scrollTop = list.scrollHeight;
    }

    const draw = drawer(() => {
      for (const [index, row] of Object.entries(fresh.sites)) table.update(index, row);
      const sitesChanged = Object.keys(fresh.sites).length > 0;
      fresh.sites = {};
      if (sitesChanged) {
        table.order();
        const hidden = head ? head.sites - table.size() : 0;
        show($("more-sites"), hidden > 0 ? `${format.number(table.size())} of ${format.number(head.sites)} sites are listed.` : "");
      }
      if (changed.has("head")) drawHead();
      if (changed.has("curves") && !zoom) drawCurves();
      if (fresh.log.length) drawLog();
      const parts = ["actions", "privacy-now", "ledger-now"].filter((name) => changed.has(name));
      changed.clear();
      for (const name of parts) htmx.trigger(`#${name}`, "changed");
    });

    function take(news) {
      skew = news.clock - Date.now() / 1000;
      if (news.all) { table.clear(); curves = null; fresh.log = []; $("lines").replaceChildren(); }
      if (news.head) { head = news.head; changed.add("head"); }
      if (news.sites) Object.assign(fresh.sites, news.sites);
      if (news.curves) { merge(news.curves); changed.add("curves"); }
      if (news.failures) drawFailures(news.failures);
      if (news.releases) { releases = news.releases; drawReleases(); }
      if (news.log) fresh.log.push(...news.log);
      if (news.metrics) {
        const choice = $("metric"), now = choice.value;
        choice.replaceChildren(...news.metrics.map(([name, words]) => new Option(words, name, false, name === now)));
        choice.hidden = news.metrics.length < 2;
        document.querySelector("label[for=metric]").hidden = choice.hidden;
      }
      draw();
    }

    function begin() {
      if (stream) stream.end();
      const metric = $("metric").value;
      stream = collegium.listen(`/run/${run}/events${metric ? `?metric=${encodeURIComponent(metric)}` : ""}`, { news: take }, connection);
    }
    $("metric").addEventListener("change", () => { zoom = null; begin(); });
    begin();
  }
})();
