import { expect, it } from "vitest";
import { byRun } from "../src/groups";
import type { Row } from "../src/types";

function row(source: number, repeat: number, run_id?: string): Row {
  return {
    key: `${source}.${repeat}.${run_id}`,
    source,
    repeat,
    run: `run-${source}`,
    run_id,
  } as Row;
}

const shown = (rows: Row[]) =>
  byRun(rows).map((group) => [group.name, group.rows.map((one) => one.repeat)]);

it("repeats of one run are one group without a name", () => {
  expect(shown([row(0, 1), row(0, 0)])).toEqual([["", [0, 1]]]);
  expect(shown([])).toEqual([]);
});

it("each run is a group with its name", () => {
  expect(shown([row(0, 0), row(1, 0), row(0, 1), row(1, 1)])).toEqual([
    ["run-0", [0, 1]],
    ["run-1", [0, 1]],
  ]);
});

it("a file in which a repeat is twice is apart by the ids of its runs", () => {
  expect(shown([row(0, 0, "a"), row(0, 1, "a"), row(0, 0, "b"), row(0, 1, "b")])).toEqual([
    ["a", [0, 1]],
    ["b", [0, 1]],
  ]);
  expect(shown([row(0, 0, "a"), row(0, 0, "")])).toEqual([
    ["a", [0]],
    ["no run id", [0]],
  ]);
  // An id alone does not part a file: a run that was resumed may have two.
  expect(shown([row(0, 0, "a"), row(0, 1, "b")])).toEqual([["", [0, 1]]]);
});
