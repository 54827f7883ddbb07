// What two rollouts, and two texts, have in common. Pure.

import type { Item } from "./types";

export interface Pair<T> {
  left: T | null;
  right: T | null;
  same: boolean;
}

const MOST_CELLS = 4_000_000;

export function textOf(item: Item): string {
  return item.parts.map((part) => part.text).join("\n");
}

// The items of two rollouts side by side: equal ones together, then those of one kind.
export function aligned(left: Item[], right: Item[]): Pair<Item>[] {
  const sign = (item: Item) => JSON.stringify([item.kind, item.role, item.name, textOf(item)]);
  const pairs = diff(left, right, sign);
  const joined: Pair<Item>[] = [];
  for (let at = 0; at < pairs.length; ) {
    if (pairs[at]?.same) {
      joined.push(pairs[at] as Pair<Item>);
      at += 1;
      continue;
    }
    const [gone, come]: [Item[], Item[]] = [[], []];
    for (; at < pairs.length && !pairs[at]?.same; at += 1) {
      const pair = pairs[at];
      if (pair?.left) gone.push(pair.left);
      if (pair?.right) come.push(pair.right);
    }
    joined.push(...sideBySide(gone, come));
  }
  return joined;
}

function sideBySide(gone: Item[], come: Item[]): Pair<Item>[] {
  const pairs: Pair<Item>[] = [];
  let next = 0;
  for (const left of gone) {
    const found = come.findIndex(
      (one, at) => at >= next && one.kind === left.kind && one.name === left.name,
    );
    if (found < 0) {
      pairs.push({ left, right: null, same: false });
      continue;
    }
    for (; next < found; next += 1)
      pairs.push({ left: null, right: come[next] ?? null, same: false });
    pairs.push({ left, right: come[found] ?? null, same: false });
    next = found + 1;
  }
  for (; next < come.length; next += 1) {
    pairs.push({ left: null, right: come[next] ?? null, same: false });
  }
  return pairs;
}

export interface Change {
  kind: "same" | "gone" | "come";
  text: string;
}

// The words of two texts: those of both, those that are gone, those that have come.
export function changes(left: string, right: string): Change[] {
  const found: Change[] = [];
  const put = (kind: Change["kind"], text: string) => {
    const last = found[found.length - 1];
    if (last?.kind === kind) last.text += text;
    else found.push({ kind, text });
  };
  for (const pair of diff(wordsOf(left), wordsOf(right), (word) => word)) {
    if (pair.same) put("same", pair.left ?? "");
    else if (pair.left !== null) put("gone", pair.left);
    else put("come", pair.right ?? "");
  }
  return found;
}

function wordsOf(text: string): string[] {
  return text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];
}

// The longest common subsequence, what stands at both ends taken off first. Where the rest is too
// long for that, it counts as changed as a whole.
export function diff<T>(left: T[], right: T[], sign: (one: T) => string): Pair<T>[] {
  const [a, b] = [left.map(sign), right.map(sign)];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (
    end < a.length - start &&
    end < b.length - start &&
    a[a.length - 1 - end] === b[b.length - 1 - end]
  ) {
    end += 1;
  }
  const same = (i: number, j: number): Pair<T> => ({
    left: left[i] ?? null,
    right: right[j] ?? null,
    same: true,
  });
  const pairs: Pair<T>[] = [];
  for (let at = 0; at < start; at += 1) pairs.push(same(at, at));
  pairs.push(...middle(left, right, a, b, start, end));
  for (let at = end; at > 0; at -= 1) pairs.push(same(a.length - at, b.length - at));
  return pairs;
}

function middle<T>(
  left: T[],
  right: T[],
  a: string[],
  b: string[],
  start: number,
  end: number,
): Pair<T>[] {
  const [rows, columns] = [a.length - start - end, b.length - start - end];
  const lengths = rows * columns <= MOST_CELLS ? table(a, b, start, rows, columns) : null;
  const width = columns + 1;
  const pairs: Pair<T>[] = [];
  let [i, j] = [0, 0];
  while (i < rows || j < columns) {
    const [x, y] = [left[start + i] ?? null, right[start + j] ?? null];
    if (lengths && i < rows && j < columns && a[start + i] === b[start + j]) {
      pairs.push({ left: x, right: y, same: true });
      i += 1;
      j += 1;
    } else if (
      i < rows &&
      (j >= columns ||
        !lengths ||
        (lengths[(i + 1) * width + j] ?? 0) >= (lengths[i * width + j + 1] ?? 0))
    ) {
      pairs.push({ left: x, right: null, same: false });
      i += 1;
    } else {
      pairs.push({ left: null, right: y, same: false });
      j += 1;
    }
  }
  return pairs;
}

function table(a: string[], b: string[], start: number, rows: number, columns: number) {
  const width = columns + 1;
  const lengths = new Uint32Array((rows + 1) * width);
  for (let i = rows - 1; i >= 0; i -= 1) {
    for (let j = columns - 1; j >= 0; j -= 1) {
      lengths[i * width + j] =
        a[start + i] === b[start + j]
          ? (lengths[(i + 1) * width + j + 1] ?? 0) + 1
          : Math.max(lengths[(i + 1) * width + j] ?? 0, lengths[i * width + j + 1] ?? 0);
    }
  }
  return lengths;
}
