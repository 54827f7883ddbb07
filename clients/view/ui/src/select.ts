// Filters, orders and aggregates over the rows of a bundle, as the server has them in SQL. Pure.

import { histogram } from "./bins";
import { FILTERS } from "./route";
import type { Overview, Row } from "./types";

export interface BundleRow extends Row {
  part: number;
  text: string;
  tools: string[];
  actors: string[];
}

const ONE_OF = [
  "run",
  "environment",
  "agent",
  "model",
  "stop",
  "boundary",
  "cause",
  "verdict",
] as const;
const SORTS: Record<string, (row: Row) => number | string | null> = {
  reward: (row) => row.reward,
  task: (row) => row.task,
  repeat: (row) => row.repeat,
  turns: (row) => row.turns,
  tools: (row) => row.tool_calls,
  tokens: (row) => row.output_tokens,
  duration: (row) => row.duration_us,
  started: (row) => row.started_at,
};

export function selected(rows: BundleRow[], query: URLSearchParams): BundleRow[] {
  const tests = testsOf(query);
  const found = rows.filter((row) => tests.every((test) => test(row)));
  return sorted(found, query.get("sort") ?? "order");
}

export function sorted(rows: BundleRow[], sort: string): BundleRow[] {
  const down = sort.startsWith("-");
  const value = SORTS[down ? sort.slice(1) : sort];
  const found = down ? [...rows].reverse() : [...rows];
  if (!value) return found;
  return found.sort((left, right) => {
    const [a, b] = [value(left), value(right)];
    if (a === null || b === null) return Number(a === null) - Number(b === null);
    const order = a < b ? -1 : Number(a > b);
    return down ? -order : order;
  });
}

type Test = (row: BundleRow) => boolean;

function testsOf(query: URLSearchParams): Test[] {
  const tests: Test[] = [];
  for (const name of FILTERS) {
    const values = query.getAll(name).filter(Boolean);
    if (values.length) tests.push(testOf(name, values));
  }
  return tests;
}

function testOf(name: (typeof FILTERS)[number], values: string[]): Test {
  const value = values[values.length - 1] ?? "";
  const limit = Number(value);
  for (const one of ONE_OF) if (one === name) return (row) => values.includes(row[one]);
  switch (name) {
    case "text": {
      const wanted = value.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
      return (row) => wanted.length > 0 && wanted.every((word) => row.text.includes(word));
    }
    case "task":
      return (row) => row.task === value;
    case "outcome":
      return (row) => row.failed === (value === "failed");
    case "tag":
      return (row) => values.every((one) => row.tags.includes(one));
    case "tool":
      return (row) => values.every((one) => row.tools.includes(one));
    case "actor":
      return (row) => values.every((one) => row.actors.includes(one));
    case "min_reward":
      return (row) => row.reward !== null && row.reward >= limit;
    case "max_reward":
      return (row) => row.reward !== null && row.reward <= limit;
    case "no_reward":
      return (row) => row.reward === null;
    case "min_turns":
      return (row) => row.turns >= limit;
    case "max_turns":
      return (row) => row.turns <= limit;
    case "tokens":
      return (row) => (row.flags & 1) === 1;
    default:
      return () => true;
  }
}

export function overviewOf(rows: Row[]): Overview {
  const rewards = rows.flatMap((row) => (row.reward === null ? [] : [row.reward]));
  const done = rows.filter((row) => !row.failed);
  const failed = rows.filter((row) => row.failed);
  return {
    totals: {
      rollouts: rows.length,
      failed: failed.length,
      rewarded: rewards.length,
      mean_reward: mean(rewards),
      min_reward: rewards.length ? rewards.reduce((a, b) => Math.min(a, b)) : null,
      max_reward: rewards.length ? rewards.reduce((a, b) => Math.max(a, b)) : null,
      turns: mean(rows.map((row) => row.turns)),
      output_tokens: mean(rows.map((row) => row.output_tokens)),
      duration_us: mean(rows.map((row) => row.duration_us)),
      tasks: new Set(rows.map((row) => row.task)).size,
      input_total: sum(rows.map((row) => row.input_tokens)),
      output_total: sum(rows.map((row) => row.output_tokens)),
    },
    environments: groups(rows, (row) => row.environment).map(([name, group]) => ({
      name,
      rollouts: group.length,
      failed: group.filter((row) => row.failed).length,
      mean_reward: mean(group.flatMap((row) => (row.reward === null ? [] : [row.reward]))),
      turns: mean(group.map((row) => row.turns)),
    })),
    stops: groups(done, (row) => row.stop).map(([name, group]) => ({ name, count: group.length })),
    causes: groups(failed, (row) => JSON.stringify([row.boundary, row.cause])).map(([, group]) => ({
      boundary: group[0]?.boundary ?? "",
      name: group[0]?.cause ?? "",
      count: group.length,
    })),
    rewards: histogram(rewards),
    turns: histogram(
      rows.map((row) => row.turns),
      true,
    ),
  };
}

function groups<T>(rows: T[], key: (row: T) => string): [string, T[]][] {
  const found = new Map<string, T[]>();
  for (const row of rows) {
    const group = found.get(key(row));
    if (group) group.push(row);
    else found.set(key(row), [row]);
  }
  return [...found].sort(([, a], [, b]) => b.length - a.length);
}

function sum(values: number[]): number {
  return values.reduce((a, b) => a + b, 0);
}

function mean(values: number[]): number | null {
  return values.length ? sum(values) / values.length : null;
}
