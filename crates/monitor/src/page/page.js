// The status page: fetches status.json every two seconds and shows it. The graphs begin with
// history.json, which the server has kept since its start.
//
// Data from the server are only set as text, never as markup: labels and messages contain text
// from clients.
"use strict";

const INTERVAL_MS = 2000;
const TIMEOUT_MS = 5000;
// A graph shows at least so many seconds.
const SPAN_MIN = 60;
// How often the history of the server is fetched.
const HISTORY_INTERVAL_MS = 30000;
const GRAPH_WIDTH = 180;
const GRAPH_HEIGHT = 40;

const byId = (id) => document.getElementById(id);

// --- Formatting of numbers

function short(number) {
  if (number === null || number === undefined || !Number.isFinite(number)) return "–";
  const magnitude = Math.abs(number);
  if (magnitude >= 1e9) return (number / 1e9).toPrecision(3) + " G";
  if (magnitude >= 1e6) return (number / 1e6).toPrecision(3) + " M";
  if (magnitude >= 1e4) return (number / 1e3).toPrecision(3) + " k";
  if (magnitude >= 100 || Number.isInteger(number)) return String(Math.round(number));
  return number.toPrecision(2);
}

// Two significant digits, or all before the point.
const digits = (number) => (number < 10 ? String(Number(number.toPrecision(2))) : String(Math.round(number)));

function bytes(number) {
  if (number === null || number === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (number >= 1024 && unit < units.length - 1) {
    number /= 1024;
    unit += 1;
  }
  return (unit === 0 ? number : number.toFixed(number < 10 ? 1 : 0)) + " " + units[unit];
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.0009995) return digits(seconds * 1e6) + " µs";
  if (seconds < 0.9995) return digits(seconds * 1e3) + " ms";
  if (seconds < 59.5) return digits(seconds) + " s";
  if (seconds < 3600) return Math.floor(seconds / 60) + " min " + Math.floor(seconds % 60) + " s";
  if (seconds < 86400) return Math.floor(seconds / 3600) + " h " + Math.floor((seconds % 3600) / 60) + " min";
  return Math.floor(seconds / 86400) + " d " + Math.floor((seconds % 86400) / 3600) + " h";
}

const clock = (time) => new Date(time * 1000).toLocaleTimeString();

function percent(share) {
  if (share === null) return "–";
  // 99.99 % is not the same as 100 %.
  return (share > 0.995 && share < 1 ? (share * 100).toFixed(2) : digits(share * 100)) + " %";
}

// --- Distributions

const count = (distribution) => distribution.buckets.reduce((sum, bucket) => sum + bucket, 0);

function merged(distributions) {
  if (distributions.length === 0) return null;
  const buckets = distributions[0].buckets.map((_, at) => distributions.reduce((sum, d) => sum + d.buckets[at], 0));
  return { first_bound: distributions[0].first_bound, buckets };
}

function since(later, earlier) {
  if (!later) return null;
  if (!earlier) return later;
  return { first_bound: later.first_bound, buckets: later.buckets.map((bucket, at) => bucket - earlier.buckets[at]) };
}

// A quantile, as exact as the buckets allow.
function quantile(distribution, share) {
  const total = distribution ? count(distribution) : 0;
  if (total <= 0) return null;
  let left = share * total;
  for (let at = 0; at < distribution.buckets.length; at += 1) {
    const inBucket = distribution.buckets[at];
    if (left <= inBucket && inBucket > 0) {
      const upper = distribution.first_bound * 2 ** at;
      const lower = at === 0 ? 0 : upper / 2;
      return lower + (upper - lower) * (left / inBucket);
    }
    left -= inBucket;
  }
  return null;
}

const ofMethod = (status, method) =>
  merged(status.storages.flatMap((s) => s.requests.filter((r) => r.method === method).map((r) => r.seconds)));
const total = (status, value) => status.storages.reduce((sum, storage) => sum + value(storage), 0);
// Only data files have a cache of records.
const ofCache = (status, value) => total(status, (s) => (s.cache ? value(s.cache) : 0));
// A storage node of a NEO cluster has no storages, and counts itself.
const ofNode = (status, value) => (status.node ? value(status.node) : 0);
const allRequests = (storage) => storage.requests.reduce((sum, request) => sum + count(request.seconds), 0);

// --- Values drawn over time. Each is a number, or null without a value.

const perSecond = (value) => (now, before, seconds) => Math.max(0, value(now) - value(before)) / seconds;
const latency = (method, share) => (now, before) => quantile(since(ofMethod(now, method), ofMethod(before, method)), share);

function hitRate(now, before) {
  const hits = ofCache(now, (c) => c.hits) - ofCache(before, (c) => c.hits);
  const misses = ofCache(now, (c) => c.misses) - ofCache(before, (c) => c.misses);
  return hits >= 0 && misses >= 0 && hits + misses > 0 ? hits / (hits + misses) : null;
}

const split = (text) => {
  const [value, unit] = text.split(/ (?=[^ ]+$)/);
  return { value, unit: unit || "" };
};

const TILES = [
  { name: "Requests", value: perSecond((s) => total(s, allRequests) + ofNode(s, (n) => n.totals.loads + n.totals.stores)), show: (v) => ({ value: short(v), unit: "/s" }) },
  {
    name: "Load p99", value: latency("loadBefore", 0.99), show: (v) => split(duration(v)),
    note: (now, before) => "median " + duration(latency("loadBefore", 0.5)(now, before)), keep: true,
  },
  { name: "Commits", value: perSecond((s) => total(s, (t) => t.commits) + ofNode(s, (n) => n.totals.commits)), show: (v) => ({ value: short(v), unit: "/s" }) },
  {
    name: "Commit p99", value: latency("tpc_finish", 0.99), show: (v) => split(duration(v)),
    note: (now, before) => "median " + duration(latency("tpc_finish", 0.5)(now, before)), keep: true,
  },
  {
    name: "Cache hit ratio", value: hitRate, show: (v) => split(percent(v)), keep: true,
    note: (now) => bytes(ofCache(now, (c) => c.bytes)) + " of " + bytes(ofCache(now, (c) => c.bytes_max)),
  },
  {
    name: "Connections", value: (now) => now.network.connections, atOnce: true, show: (v) => ({ value: short(v), unit: "" }),
    note: (now) => total(now, (s) => s.open_transactions) + ofNode(now, (n) => n.open_transactions) + " open transactions",
  },
  {
    name: "Network", value: perSecond((s) => s.network.bytes_sent + s.network.bytes_received), show: (v) => split(bytes(v) + "/s"),
    note: (now) => bytes(now.network.unsent_bytes) + " wait to be sent",
  },
  {
    name: "Processor", value: perSecond((s) => s.process.cpu_seconds), show: (v) => split(percent(v)),
    note: (now) => "memory " + bytes(now.process.resident_bytes),
  },
];

// --- Building blocks

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function drawing(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// Replaces the content of `parent`, unless it is the same already: so a selection is kept.
function fill(parent, ...children) {
  const made = element("div");
  made.append(...children);
  if (parent.innerHTML !== made.innerHTML) parent.replaceChildren(...made.childNodes);
}

// How the reader has sorted each table, by its caption.
const ORDERS = new Map();

function compare(one, two) {
  if (typeof one === "number" && typeof two === "number") return one - two;
  return String(one ?? "").localeCompare(String(two ?? ""), undefined, { numeric: true });
}

document.addEventListener("click", (event) => {
  const { table: caption, column } = event.target.dataset;
  if (caption === undefined) return;
  const [at, order] = [Number(column), ORDERS.get(caption)];
  // Numbers are looked at from the largest on.
  const first = event.target.parentElement.className === "number" ? -1 : 1;
  ORDERS.set(caption, { at, sign: order && order.at === at ? -order.sign : first });
  if (before) showTables(before);
  document.querySelector(`button[data-table="${caption}"][data-column="${column}"]`)?.focus();
});

// `columns`: title, text of a row, class, and what it is sorted by, if that is not the text. The
// first column names the row.
function table(caption, columns, rows, ifNone) {
  if (rows.length === 0) return element("p", ifNone, "none");
  const made = element("table");
  made.append(element("caption", caption, "unseen"));
  const titles = element("tr");
  const order = ORDERS.get(caption);
  columns.forEach(([title, , className], at) => {
    const cell = element("th", null, className);
    cell.scope = "col";
    const isSorted = order && order.at === at;
    if (isSorted) cell.ariaSort = order.sign > 0 ? "ascending" : "descending";
    const button = element("button", title + (isSorted ? (order.sign > 0 ? " ▴" : " ▾") : ""), "sort");
    button.type = "button";
    button.dataset.table = caption;
    button.dataset.column = at;
    cell.append(button);
    titles.append(cell);
  });
  if (order) {
    const [, text, , key] = columns[order.at];
    const value = key || text;
    rows = [...rows].sort((a, b) => order.sign * compare(value(a), value(b)));
  }
  const head = element("thead");
  head.append(titles);
  const body = element("tbody");
  for (const row of rows) {
    const line = element("tr");
    columns.forEach(([title, text, className], at) => {
      const cell = element(at === 0 ? "th" : "td", text(row), className);
      if (at === 0) cell.scope = "row";
      else cell.dataset.label = title;
      line.append(cell);
    });
    body.append(line);
  }
  made.append(head, body);
  return made;
}

function list(entries) {
  const made = element("dl");
  for (const [term, text, className] of entries) {
    const entry = element("div", null, className);
    entry.append(element("dt", term), element("dd", text));
    made.append(entry);
  }
  return made;
}

// --- Tiles

function makeTiles() {
  for (const tile of TILES) {
    const box = element("article", null, "tile");
    tile.points = [];
    tile.valueElement = element("p", "–", "value");
    tile.noteElement = element("p", "", "note");
    tile.area = drawing("path", { class: "area" });
    tile.line = drawing("path", { class: "line" });
    tile.graph = drawing("svg", { viewBox: `0 0 ${GRAPH_WIDTH} ${GRAPH_HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    tile.graph.append(tile.area, tile.line);
    tile.topElement = element("span", "");
    tile.sinceElement = element("span", "");
    const scale = element("p", null, "scale");
    scale.append(tile.sinceElement, tile.topElement);
    box.append(element("h3", tile.name), tile.valueElement, tile.noteElement, tile.graph, scale);
    byId("tiles").append(box);
  }
}

function showTiles(now, before) {
  const seconds = before ? now.time - before.time : 0;
  for (const tile of TILES) {
    const value = tile.atOnce || seconds > 0 ? tile.value(now, before, seconds) : null;
    tile.points.push({ time: now.time, value });
    // A latency stays until there is a newer one; a rate of nothing is 0.
    if (value !== null || !tile.keep) {
      const shown = value === null ? { value: "–", unit: "" } : tile.show(value);
      const parts = [shown.value + " "];
      if (shown.unit) parts.push(element("small", shown.unit));
      tile.valueElement.replaceChildren(...parts);
      if (tile.note && (before || !tile.keep)) tile.noteElement.textContent = tile.note(now, before);
    }
    draw(tile);
  }
}

function draw(tile) {
  const points = tile.points;
  const values = points.map((point) => point.value).filter((value) => value !== null);
  const highest = Math.max(...values, 0) || 1;
  const last = points[points.length - 1].time;
  const span = Math.max(last - points[0].time, SPAN_MIN);
  const x = (point) => (GRAPH_WIDTH * (1 - (last - point.time) / span)).toFixed(1);
  const y = (point) => (GRAPH_HEIGHT - 2 - (point.value / highest) * (GRAPH_HEIGHT - 6)).toFixed(1);
  let line = "";
  let area = "";
  // Each run of points with values is a line of its own.
  for (let at = 0; at < points.length; at += 1) {
    let end = at;
    while (end < points.length && points[end].value !== null) end += 1;
    if (end === at) continue;
    const path = points.slice(at, end).map((point) => `${x(point)} ${y(point)}`).join("L");
    line += "M" + path;
    area += `M${path}L${x(points[end - 1])} ${GRAPH_HEIGHT}L${x(points[at])} ${GRAPH_HEIGHT}Z`;
    at = end;
  }
  tile.line.setAttribute("d", line);
  tile.area.setAttribute("d", area);
  const text = (value) => {
    const shown = tile.show(value);
    return `${shown.value} ${shown.unit}`.trim();
  };
  const now = values.length ? text(values[values.length - 1]) : "nothing yet";
  const top = values.length ? text(Math.max(...values)) : "nothing";
  const since = clock(points[0].time);
  tile.topElement.textContent = values.length ? "max " + top : "";
  tile.sinceElement.textContent = "since " + since;
  tile.graph.setAttribute("aria-label", `${tile.name} since ${since}: now ${now}, at most ${top}`);
}

// A server that hangs must not stop the round.
async function fetchJson(name) {
  const given = new AbortController();
  const patience = setTimeout(() => given.abort(), TIMEOUT_MS);
  try {
    return await (await fetch(name, { signal: given.signal, cache: "no-store" })).json();
  } finally {
    clearTimeout(patience);
  }
}

// What the server has kept, and after it what this page has seen.
async function fetchHistory() {
  try {
    const { points } = await fetchJson("history.json");
    if (points.length) {
      const newest = points[points.length - 1].time;
      TILES.forEach((tile, series) => {
        const kept = points.map((point) => ({ time: point.time, value: point.values[series] }));
        tile.points = kept.concat(tile.points.filter((point) => point.time > newest));
      });
    }
  } catch {
    // The next status says that there is no answer.
  }
  setTimeout(fetchHistory, HISTORY_INTERVAL_MS);
}

// --- Tables

const STATES = {
  writable: ["accepts commits", "good"],
  readonly: ["read-only", "good"],
  full: ["no space left", "bad"],
  failed: ["a write failed", "bad"],
  stalled: ["its disk does not answer", "bad"],
  unreachable: ["its cluster is not there", "bad"],
  changed: ["another program changed the file", "bad"],
  waiting: ["serves nothing yet", "bad"],
  closing: ["closing", "warn"],
};

function packText(pack, time) {
  if (pack.running) {
    const done = pack.running.done === null ? "" : ", " + percent(pack.running.done) + " done";
    return `${pack.running.step} for ${duration(pack.running.seconds)}${done}`;
  }
  if (!pack.last) return "none since the start";
  const ended = duration(Math.max(0, time - pack.last.time)) + " ago, took " + duration(pack.last.seconds);
  return pack.last.error === null ? `${ended}, freed ${bytes(pack.last.freed_bytes)}` : `failed ${ended}: ${pack.last.error}`;
}

function blobEntries(blobs) {
  if (!blobs) return [];
  const traffic = (number, size) => `${number.toLocaleString()} (${bytes(size)})`;
  return [
    ["Blobs received", traffic(blobs.received, blobs.received_bytes)],
    ["Blobs sent", traffic(blobs.sent, blobs.sent_bytes)],
    ["Space left for blobs", bytes(blobs.disk_free_bytes)],
    ["Blob directory", blobs.directory, "wide"],
  ];
}

function storageCard(storage, status) {
  const state = status.health.storages.find((health) => health.name === storage.name);
  const stateName = state ? state.state : "closing";
  const [stateText, stateClass] = STATES[stateName] ?? [stateName, "bad"];
  const card = element("article", null, "card");
  const title = element("h3", storage.name);
  title.append(element("span", stateText, "pill " + stateClass), element("span", storage.file, "quiet"));
  const age = storage.last_transaction_time === null ? "none yet"
    : duration(Math.max(0, status.time - storage.last_transaction_time)) + " ago";
  const locks = storage.oldest_lock_seconds === null ? "none"
    : `${storage.holding_locks}, oldest for ${duration(storage.oldest_lock_seconds)}`;
  const batches = count(storage.batches);
  card.append(title, list([
    ["Size", bytes(storage.size_bytes)],
    ["Disk space left", bytes(storage.disk_free_bytes)],
    ["Objects", storage.objects.toLocaleString()],
    ["Last transaction", age],
    ["Clients", short(storage.connections)],
    ["Commits", storage.commits.toLocaleString()],
    ["Aborts", storage.aborts.toLocaleString()],
    ["Conflicts", storage.conflicts.toLocaleString()],
    ["Waiting for locks", short(storage.waiting_for_locks)],
    ["Locks held", locks],
    ["Finish queue", short(storage.finish_queue)],
    ["Commits per sync", batches ? short(storage.batches.sum / batches) : "–"],
    ["Sync p99", duration(quantile(storage.syncs, 0.99))],
    ["Loads from disk", short(count(storage.cold_loads))],
    ["Errors answered", short(storage.errors.reduce((sum, [, n]) => sum + n, 0))],
    ...blobEntries(storage.blobs),
    ["Pack", packText(storage.pack, status.time), "wide"],
  ]));
  return card;
}

const nameOf = (connection) => connection.label || connection.peer;

function waitText(connection) {
  const wait = connection.transaction.waits_for;
  if (!wait) return "";
  return `${wait.what}, behind ${wait.behind_label || "transaction " + wait.behind}`;
}

function openText(connection) {
  const open = [];
  if (connection.transaction) open.push("transaction (" + connection.transaction.state + ")");
  if (connection.iterators) open.push(connection.iterators + " iterators");
  if (connection.requests_under_way) open.push(connection.requests_under_way + " requests");
  if (connection.unsent_bytes) open.push(bytes(connection.unsent_bytes) + " unsent");
  return open.join(", ");
}

function storageText(connection) {
  if (connection.storage === null) return "not registered";
  return connection.storage + (connection.read_only ? " (reads only)" : "");
}

function nodeCard(node) {
  const card = element("article", null, "card");
  const title = element("h3", `${node.id || "no id yet"} of ${node.cluster}`);
  title.append(element("span", node.state, "pill " + (node.is_operating ? "good" : "bad")),
    element("span", node.database, "quiet"));
  const states = {};
  for (const cell of node.cells) states[cell.state] = (states[cell.state] || 0) + 1;
  const cells = Object.entries(states).map(([state, number]) => `${number} ${state}`).join(", ");
  card.append(title, list([
    ["Primary master", node.master || "none"],
    ["Database", bytes(node.database_bytes)],
    ["Cells", cells || "none"],
    ["Replication lag", node.replication_lag_seconds ? duration(node.replication_lag_seconds) : "none"],
    ["Fetching", node.replicating === null ? "nothing" : "partition " + node.replicating],
    ["Fetched records", node.totals.fetched_records.toLocaleString()],
    ["Sent to storages", bytes(node.totals.fed_bytes)],
    ["Clients", short(node.client_connections)],
    ["Loads", `${node.totals.loads.toLocaleString()}, ${node.totals.remembered_loads.toLocaleString()} from memory`],
    ["Stores", node.totals.stores.toLocaleString()],
    ["Commits", node.totals.commits.toLocaleString()],
    ["Conflicts", node.totals.conflicts.toLocaleString()],
    ["Transactions", `${node.open_transactions} open, ${node.voted_transactions} voted, ${node.locked_transactions} locked`],
    ["Compared partitions", `${node.totals.checked_partitions}, ${node.totals.differing_cells} cells differed`],
  ]));
  const behind = node.cells.filter((cell) => cell.replicated !== null || cell.state !== "UP_TO_DATE");
  if (behind.length) {
    card.append(table("Cells that are not up to date", [
      ["Partition", (c) => String(c.partition)],
      ["State", (c) => c.state],
      ["Replicated", (c) => c.replicated || "–"],
      ["Until", (c) => c.until || "–"],
      ["Lag", (c) => duration(c.lag_seconds), "number"],
    ], behind, ""));
  }
  return card;
}

function clusterCard(cluster) {
  const card = element("article", null, "card");
  const title = element("h3", cluster.name);
  const isGood = cluster.state === "RUNNING" || cluster.state === "BACKINGUP";
  title.append(element("span", cluster.state || "unknown", "pill " + (isGood ? "good" : "bad")));
  const primary = cluster.nodes.find((node) => node.is_primary);
  const storages = cluster.nodes.filter((node) => node.kind === "STORAGE");
  const counts = {};
  for (const [state, number] of storages.flatMap((node) => node.cells)) {
    counts[state] = (counts[state] || 0) + number;
  }
  const cellsText = (cells) => cells.map(([state, number]) => `${number} ${state}`).join(", ");
  card.append(title, list([
    ["Primary master", primary ? `${primary.id} at ${primary.address}` : "none"],
    ["Partition table", cluster.table || "none"],
    ["Partitions", `${cluster.partitions}, replicas ${cluster.replicas}`],
    ["Cells", cellsText(Object.entries(counts)) || "none"],
  ]));
  card.append(table("Nodes of the cluster", [
    ["Node", (n) => n.id || "–"],
    ["Kind", (n) => n.kind + (n.is_primary ? " (primary)" : "")],
    ["Address", (n) => n.address || "–"],
    ["State", (n) => n.state],
    ["Cells", (n) => cellsText(n.cells) || "–"],
  ], cluster.nodes, ""));
  return card;
}

function respCard(resp) {
  const card = element("article", null, "card");
  card.append(element("h3", "Keys of Redis and Valkey clients"));
  const number = (value) => (value === null ? "locked by a script" : value.toLocaleString());
  const asked = resp.hits + resp.misses;
  const most = resp.data_bytes_max === null ? "" : " of " + bytes(resp.data_bytes_max);
  card.append(list([
    ["Keys", number(resp.keys)],
    ["Keys that expire", number(resp.volatile_keys)],
    ["Keys and values", bytes(resp.data_bytes) + most],
    ["Clients", short(resp.connections)],
    ["Clients that wait", short(resp.blocked_clients)],
    ["Commands", resp.commands.toLocaleString()],
    ["Keys found", asked ? (100 * resp.hits / asked).toFixed(1) + " %" : "–"],
    ["Expired", resp.expired.toLocaleString()],
    ["Evicted", resp.evicted.toLocaleString()],
    ["Refused: no memory", resp.refused_for_memory.toLocaleString()],
    ["Refused: file of keys", resp.refused_for_file.toLocaleString()],
    ["File of keys", resp.file ? bytes(resp.file.bytes) : "none"],
  ]));
  return card;
}

function showTables(status) {
  const cards = element("div", null, "cards");
  if (status.node) cards.append(nodeCard(status.node));
  if (status.cluster) cards.append(clusterCard(status.cluster));
  if (status.resp) cards.append(respCard(status.resp));
  cards.append(...status.storages.map((storage) => storageCard(storage, status)));
  fill(byId("storages"), cards);

  const transactions = status.connections.filter((connection) => connection.transaction);
  transactions.sort((a, b) => b.transaction.seconds - a.transaction.seconds);
  byId("transactions-count").textContent = transactions.length || "";
  fill(byId("transactions"), table("Open transactions", [
    ["Client", nameOf],
    ["Storage", (c) => c.storage],
    ["State", (c) => c.transaction.state],
    ["Open for", (c) => duration(c.transaction.seconds), "number", (c) => c.transaction.seconds],
    ["Waits for", waitText],
  ], transactions, "No open transactions."));

  byId("connections-count").textContent = status.network.connections || "";
  const more = status.network.connections - status.connections.length;
  const connections = [table("Connections", [
    ["Client", nameOf],
    ["From", (c) => c.peer, "plain"],
    ["Storage", storageText],
    ["Connected for", (c) => duration(c.seconds), "number", (c) => c.seconds],
    ["Open", openText],
  ], status.connections, "No connections.")];
  if (more > 0 && status.connections.length) connections.push(element("p", `and ${more} more`, "quiet"));
  fill(byId("connections"), ...connections);

  const { arrivals, refused } = status.network;
  const from = [];
  if (arrivals.length) from.push(table("New connections within a minute, by host", [
    ["Host", ([host]) => host, "plain"],
    ["New connections in a minute", ([, number]) => number.toLocaleString(), "number", ([, number]) => number],
  ], arrivals, ""));
  const reasons = refused.filter(([, number]) => number).map(([reason, number]) => `${reason} ${number.toLocaleString()}`);
  if (reasons.length) from.push(element("p", "Refused since the start: " + reasons.join(", "), "quiet"));
  fill(byId("arrivals"), ...from);

  const requests = status.storages.flatMap((storage) =>
    storage.requests.map((request) => ({ storage: storage.name, calls: count(request.seconds), ...request })));
  requests.sort((a, b) => b.calls - a.calls);
  fill(byId("requests"), table("Requests since the start", [
    ["Method", (r) => r.method],
    ["Storage", (r) => r.storage],
    ["Calls", (r) => r.calls.toLocaleString(), "number", (r) => r.calls],
    ["Median", (r) => duration(quantile(r.seconds, 0.5)), "number", (r) => quantile(r.seconds, 0.5) ?? 0],
    ["p99", (r) => duration(quantile(r.seconds, 0.99)), "number", (r) => quantile(r.seconds, 0.99) ?? 0],
  ], requests, "No requests yet."));

  byId("messages-count").textContent = status.messages.length || "";
  fill(byId("messages"), table("Warnings and errors, newest first", [
    ["Time", (m) => clock(m.time), "plain", (m) => m.time],
    ["Level", (m) => m.level],
    ["Message", (m) => m.text, "text"],
  ], status.messages, "None since the start."));
}

function showHeader(status) {
  const healthy = status.complaints.length === 0;
  const health = byId("health");
  const text = healthy ? "healthy" : "not healthy";
  if (health.textContent !== text) health.textContent = text;
  health.className = "pill " + (healthy ? "good" : "bad");
  byId("version").textContent = status.server.version;
  byId("uptime").textContent = "up for " + duration(Math.max(0, status.time - status.server.started));
  byId("complaints").hidden = healthy;
  fill(byId("complaints"), ...status.complaints.map((complaint) => element("li", complaint)));
  byId("process").textContent = `${status.server.workers} workers, ${short(status.process.open_files)} of ` +
    `${short(status.process.open_files_max)} files open`;
  document.title = (healthy ? "" : "✗ ") + "Zodium";
}

// --- The round

let before = null;

async function refresh() {
  try {
    const status = await fetchJson("status.json");
    // After a restart of the server its counters begin at zero.
    if (before && before.server.started !== status.server.started) {
      before = null;
      for (const tile of TILES) tile.points = [];
    }
    showHeader(status);
    showTiles(status, before);
    showTables(status);
    document.body.classList.remove("stale");
    before = status;
  } catch {
    document.body.classList.add("stale");
    byId("health").textContent = "no answer";
    byId("health").className = "pill bad";
  } finally {
    setTimeout(refresh, INTERVAL_MS);
  }
}

byId("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
});

makeTiles();
fetchHistory().then(refresh);
