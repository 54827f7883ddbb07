// The bins of a histogram, with round edges, and how to draw them to scale. Pure.
// The bins are those of clients/view/gymmesh_view/index/bins.py.

import type { Bin } from "./types";

const MOST_BINS = 24;
const EPSILON = 1e-9;
const ROUND = [1, 2, 2.5, 5, 10];
const ROUND_WHOLE = [1, 2, 5, 10];

interface Grid {
  start: number;
  width: number;
  count: number;
}

export function gridOf(low: number, high: number, whole: boolean): Grid {
  let least = high / MOST_BINS - low / MOST_BINS;
  if (whole) least = Math.max(1, least);
  if (!least) return { start: low, width: 1, count: 1 };
  const width = roundStep(least, whole);
  if (!(width && Number.isFinite(low / width) && Number.isFinite(high / width))) {
    return { start: low, width: least, count: MOST_BINS };
  }
  const start = Math.floor(low / width + EPSILON) * width;
  if (!Number.isFinite(start)) return { start: low, width: least, count: MOST_BINS };
  const last = high / width - start / width;
  const count = whole ? Math.floor(last + EPSILON) + 1 : Math.ceil(last - EPSILON);
  return { start, width, count: Math.max(1, Math.min(count, MOST_BINS + 2)) };
}

// The least round number that is no smaller.
function roundStep(least: number, whole: boolean): number {
  const scale = 10 ** Math.floor(Math.log10(least));
  const steps = whole ? ROUND_WHOLE : ROUND;
  const found = steps.find((one) => one * scale >= least * (1 - EPSILON));
  return (found ?? 10) * scale;
}

// Equally wide bins; where none has two different values, each value is a bin of its own, which
// begins and ends there.
export function histogram(values: number[], whole = false): Bin[] {
  if (!values.length) return [];
  const low = values.reduce((a, b) => Math.min(a, b));
  const high = values.reduce((a, b) => Math.max(a, b));
  const grid = gridOf(low, high, whole);
  const edge = (at: number) =>
    Math.max(-Number.MAX_VALUE, Math.min(grid.start + at * grid.width, Number.MAX_VALUE));
  const bins: Bin[] = Array.from({ length: grid.count }, (_, at) => ({
    from: edge(at),
    to: edge(at + 1),
    count: 0,
    least: null,
    most: null,
  }));
  for (const value of values) {
    const place = Math.floor((value - grid.start) / grid.width + EPSILON);
    const bin = bins[Math.max(0, Math.min(place, grid.count - 1))];
    if (!bin) continue;
    bin.count += 1;
    bin.least = Math.min(bin.least ?? value, value);
    bin.most = Math.max(bin.most ?? value, value);
  }
  if (bins.some((bin) => bin.least !== bin.most)) return bins;
  return bins
    .filter((bin) => bin.count > 0)
    .map((bin) => ({ ...bin, from: bin.least ?? bin.from, to: bin.most ?? bin.to }));
}

export interface Scale {
  // Shares of the width, from 0 to 1.
  bars: { bin: Bin; left: number; width: number }[];
  ticks: { value: number; at: number }[];
}

// Where bars and ticks are on an axis on which every value has its place.
export function scaled(bins: Bin[], whole: boolean, unit: boolean): Scale {
  const [first, last] = [bins[0], bins[bins.length - 1]];
  if (!first || !last) return { bars: [], ticks: [] };
  const alone = bins.every((bin) => bin.from === bin.to);
  let [low, high] = [first.from, last.to];
  // Rewards are read against 0 and 1.
  if (unit && low >= 0 && high <= 1) [low, high] = [0, 1];
  const gaps = bins.slice(1).map((bin, at) => bin.from - (bins[at]?.from ?? 0));
  // Of numbers whose difference is infinite, the difference of shares is not.
  const widest = whole ? 1 : high / 20 - low / 20 || 1;
  const bar = alone ? Math.min(...gaps, widest) : 0;
  // A value's bar is around the value, so that the axis goes half a bar beyond.
  const [from, end] = [low - bar / 2, high + bar / 2];
  const span = end / 4 - from / 4 || 1;
  const at = (value: number) => (value / 4 - from / 4) / span;
  const bars = bins.map((bin) => {
    const [left, right] = alone ? [bin.from - bar / 2, bin.from + bar / 2] : [bin.from, bin.to];
    return { bin, left: at(left), width: at(right) - at(left) };
  });
  return { bars, ticks: ticksOf(low, high, whole).map((value) => ({ value, at: at(value) })) };
}

// Round values from low to high, about five; where there are fewer than two, both ends.
export function ticksOf(low: number, high: number, whole: boolean, about = 5): number[] {
  const least = high / about - low / about;
  if (!(least > 0) || !Number.isFinite(least)) return low === high ? [low] : [low, high];
  const step = roundStep(whole ? Math.max(1, least) : least, whole);
  const first = Math.ceil(low / step - EPSILON);
  const count = Math.floor(high / step - first + EPSILON) + 1;
  // Of numbers so large that a step more is no other number there are none.
  if (!(count > 1 && count <= 2 * about && Number.isSafeInteger(first))) return [low, high];
  return Array.from({ length: count }, (_, at) => Number(((first + at) * step).toPrecision(12)));
}

// The ticks of an axis of counts, from 0 to a round number that no count exceeds.
export function countTicks(most: number): number[] {
  const step = roundStep(Math.max(1, most / 3), true);
  const ticks = Math.ceil(most / step - EPSILON);
  return Array.from({ length: ticks + 1 }, (_, at) => at * step);
}
