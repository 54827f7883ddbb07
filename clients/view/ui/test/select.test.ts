import { expect, it } from "vitest";
import { type BundleRow, overviewOf, selected } from "../src/select";

function rows(): BundleRow[] {
  return Array.from({ length: 60 }, (_, at) => ({
    key: `k${at}`,
    rollout_id: `k${at}`,
    task: `task-${at % 7}`,
    repeat: at,
    attempt: 1,
    environment: ["sums", "shop"][at % 2] ?? "",
    agent: "tool_loop",
    model: "m",
    reward: [0, 0.5, 1, null][at % 4] ?? null,
    verdict: "VERIFIED",
    stop: at % 5 ? "MODEL_FINISHED" : "",
    boundary: at % 5 ? "" : "MODEL",
    cause: at % 5 ? "" : "MODEL_SERVER_ERROR",
    failed: at % 5 === 0,
    turns: at % 6,
    tool_calls: 0,
    input_tokens: 1,
    output_tokens: at % 13,
    duration_us: 1,
    started_at: null,
    flags: at % 2,
    tags: [`level=${at % 3}`],
    title: "",
    source: 0,
    run: "rows.jsonl",
    part: 0,
    text: `the ${["apple", "pear"][at % 2]} of task ${at}`,
    tools: at % 2 ? ["add"] : [],
    actors: [],
  }));
}

const found = (query: string) => selected(rows(), new URLSearchParams(query)).map((row) => row.key);
const wanted = (test: (at: number) => boolean) =>
  rows().flatMap((row, at) => (test(at) ? [row.key] : []));

it("filters find what they say", () => {
  expect(found("environment=shop")).toEqual(wanted((at) => at % 2 === 1));
  expect(found("environment=shop&environment=sums")).toEqual(wanted(() => true));
  expect(found("outcome=failed&tag=level%3D0")).toEqual(wanted((at) => at % 15 === 0));
  expect(found("min_reward=0.5&max_reward=0.5")).toEqual(wanted((at) => at % 4 === 1));
  expect(found("no_reward=1")).toEqual(wanted((at) => at % 4 === 3));
  expect(found("text=PEAR%20task")).toEqual(wanted((at) => at % 2 === 1));
  expect(found("text=%22%22")).toEqual([]);
  expect(found("tool=add&min_turns=3&max_turns=3")).toEqual(wanted((at) => at % 6 === 3));
});

it("orders put what has no value last, in both directions", () => {
  for (const sort of ["reward", "-reward"]) {
    const values = selected(rows(), new URLSearchParams({ sort })).map((row) => row.reward);
    expect(values.slice(-15)).toEqual(Array(15).fill(null));
    const known = values.slice(0, 45).map(Number);
    const ascending = [...known].sort((a, b) => a - b);
    expect(known).toEqual(sort === "reward" ? ascending : ascending.reverse());
  }
  expect(found("sort=-order")[0]).toBe("k59");
});

it("the overview counts each rollout once", () => {
  const { totals, environments, stops, causes, rewards, turns } = overviewOf(rows());
  const sum = (list: { count: number }[]) => list.reduce((a, b) => a + b.count, 0);
  expect(totals).toMatchObject({ rollouts: 60, failed: 12, rewarded: 45, mean_reward: 0.5 });
  expect(environments.map((one) => one.rollouts)).toEqual([30, 30]);
  expect(sum(stops) + sum(causes)).toBe(60);
  expect(sum(rewards)).toBe(45);
  expect(sum(turns)).toBe(60);
  expect(overviewOf([]).totals.mean_reward).toBe(null);
});
