import { expect, it } from "vitest";
import { aligned, changes, diff } from "../src/diff";
import type { Item } from "../src/types";

function dice(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1103515245 + 12345) % 2147483648;
    return state / 2147483648;
  };
}

// The length of the longest common subsequence, by trying both ways at each place.
function longest(a: string, b: string): number {
  const known = new Map<string, number>();
  const at = (i: number, j: number): number => {
    if (i === a.length || j === b.length) return 0;
    const key = `${i},${j}`;
    const found =
      known.get(key) ??
      (a[i] === b[j] ? 1 + at(i + 1, j + 1) : Math.max(at(i + 1, j), at(i, j + 1)));
    known.set(key, found);
    return found;
  };
  return at(0, 0);
}

it("a difference keeps both sides, and as much in common as there is", () => {
  const roll = dice(3);
  for (let round = 0; round < 300; round += 1) {
    const word = () =>
      Array.from({ length: Math.floor(roll() * 9) }, () => "abc"[Math.floor(roll() * 3)]).join("");
    const [a, b] = [word(), word()];
    const pairs = diff([...a], [...b], (one) => one);
    expect(pairs.map((one) => one.left ?? "").join("")).toBe(a);
    expect(pairs.map((one) => one.right ?? "").join("")).toBe(b);
    expect(pairs.filter((one) => one.same).length).toBe(longest(a, b));
  }
});

it("words that differ are marked, and nothing is lost", () => {
  const found = changes("the answer is 41, I think", "the answer is 42!");
  const side = (kind: string) =>
    found
      .filter((one) => one.kind !== kind)
      .map((one) => one.text)
      .join("");
  expect(side("come")).toBe("the answer is 41, I think");
  expect(side("gone")).toBe("the answer is 42!");
  expect(found[0]).toEqual({ kind: "same", text: "the answer is " });
});

it("texts too long to compare count as changed as a whole", () => {
  const [left, right] = [Array(3000).fill("a"), Array(3000).fill("b")];
  expect(diff(left, right, (one) => one).length).toBe(6000);
});

it("items of one kind stand beside each other", () => {
  const item = (kind: Item["kind"], text: string): Item => ({
    kind,
    role: "assistant",
    prompt: false,
    parts: [{ as: "text", text }],
  });
  const pairs = aligned(
    [item("message", "same"), item("reasoning", "one"), item("message", "two")],
    [item("message", "same"), item("message", "three")],
  );
  expect(pairs.map((one) => [one.left?.kind, one.right?.kind])).toEqual([
    ["message", "message"],
    ["reasoning", undefined],
    ["message", "message"],
  ]);
  expect(pairs.map((one) => one.same)).toEqual([true, false, false]);
});
