// The repeats of a task, each run's by themselves. Pure.

import type { Row } from "./types";

export interface Group {
  key: string;
  // The file or run; empty where all are of one.
  name: string;
  rows: Row[];
}

// Rollouts in the order of their sources, each source's by repeat. A file of several runs, in which
// a repeat is there more than once, is a group for each run.
export function byRun(rows: Row[]): Group[] {
  const groups = new Map<string, Row[]>();
  const merged = sourcesOfSeveral(rows);
  for (const row of rows) {
    const key = JSON.stringify([row.source, merged.has(row.source) ? (row.run_id ?? "") : ""]);
    const group = groups.get(key);
    if (group) group.push(row);
    else groups.set(key, [row]);
  }
  const several = new Set(rows.map((row) => row.source)).size > 1;
  const name = ([first]: Row[]) => {
    if (!first || groups.size < 2) return "";
    const run = merged.has(first.source) ? first.run_id || "no run id" : "";
    return [several ? first.run : "", run].filter(Boolean).join(" · ");
  };
  return [...groups].map(([key, group]) => ({
    key,
    name: name(group),
    rows: [...group].sort((a, b) => a.repeat - b.repeat),
  }));
}

function sourcesOfSeveral(rows: Row[]): Set<number> {
  const seen = new Set<string>();
  const found = new Set<number>();
  for (const row of rows) {
    const place = `${row.source} ${row.repeat}`;
    if (seen.has(place)) found.add(row.source);
    seen.add(place);
  }
  return found;
}
