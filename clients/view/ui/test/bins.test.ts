import { expect, it } from "vitest";
import { countTicks, histogram, scaled, ticksOf } from "../src/bins";

it("many values are in bins of one width, with round edges", () => {
  const values = Array.from({ length: 1000 }, (_, at) => at / 999);
  const bins = histogram(values);
  expect(bins.length).toBe(20);
  expect(bins.reduce((a, b) => a + b.count, 0)).toBe(1000);
  expect(bins[2]?.from).toBeCloseTo(0.1);
  expect(bins[19]?.to).toBeCloseTo(1);
  for (const bin of bins) {
    expect(bin.least).toBeGreaterThanOrEqual(bin.from - 1e-9);
    expect(bin.most).toBeLessThanOrEqual(bin.to + 1e-9);
  }
});

it("values that are apart are bins of their own", () => {
  expect(histogram([1, 0, 0, 0.5])).toEqual([
    { from: 0, to: 0, count: 2, least: 0, most: 0 },
    { from: 0.5, to: 0.5, count: 1, least: 0.5, most: 0.5 },
    { from: 1, to: 1, count: 1, least: 1, most: 1 },
  ]);
  expect(histogram([3, 3])).toEqual([{ from: 3, to: 3, count: 2, least: 3, most: 3 }]);
  expect(histogram([])).toEqual([]);
});

it("whole numbers are in bins of as many each", () => {
  const values = Array.from({ length: 60 }, (_, at) => at + 1);
  const bins = histogram(values, true);
  expect(bins.map((bin) => bin.to - bin.from)).toEqual(Array(bins.length).fill(5));
  expect(bins[0]).toEqual({ from: 0, to: 5, count: 4, least: 1, most: 4 });
  expect(bins[bins.length - 1]).toEqual({ from: 60, to: 65, count: 1, least: 60, most: 60 });
});

it("values of any size have bins", () => {
  for (const values of [
    [-1e308, 0, 1e308],
    [0, -1.7000000001e308],
    [0, 5e-324, 1e-323],
    [1e300, 1e300 + 1e285],
    [-3, -2.5, -2.4, 7],
    [1e16, 1e16 + 2, 1e16 + 4],
  ]) {
    const bins = histogram(values);
    expect(bins.reduce((a, b) => a + b.count, 0)).toBe(values.length);
    const { bars } = scaled(bins, false, true);
    for (const bar of bars) {
      expect(bar.left).toBeGreaterThanOrEqual(-1e-6);
      expect(bar.left + bar.width).toBeLessThanOrEqual(1 + 1e-6);
    }
  }
});

it("each bar is drawn at its value", () => {
  const { bars, ticks } = scaled(histogram([0, 0.1, 1]), false, true);
  const at = (value: number) => ticks.find((one) => one.value === value)?.at ?? Number.NaN;
  const middle = (bar: { left: number; width: number } | undefined) =>
    bar ? bar.left + bar.width / 2 : Number.NaN;
  expect(ticks.map((one) => one.value)).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
  expect(middle(bars[0])).toBeCloseTo(at(0));
  expect(middle(bars[1])).toBeCloseTo(at(0) + 0.1 * (at(1) - at(0)));
  expect(middle(bars[2])).toBeCloseTo(at(1));
});

it("an axis of rewards goes from 0 to 1 where all are between", () => {
  const { bars } = scaled(histogram([0.25, 0.25]), false, true);
  expect((bars[0]?.left ?? 0) + (bars[0]?.width ?? 0) / 2).toBeCloseTo(0.262, 2);
  const wider = scaled(histogram([-1, 2]), false, true);
  expect(wider.ticks[0]?.value).toBe(-1);
  expect(wider.ticks[wider.ticks.length - 1]?.value).toBe(2);
});

it("ticks are round, and whole for whole numbers", () => {
  expect(ticksOf(1, 4, true)).toEqual([1, 2, 3, 4]);
  expect(countTicks(1)).toEqual([0, 1]);
  expect(countTicks(34)).toEqual([0, 20, 40]);
  expect(countTicks(1_000_000)).toEqual([0, 500_000, 1_000_000]);
  expect(ticksOf(7, 7, true)).toEqual([7]);
  expect(ticksOf(0, 1, false)).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
});
