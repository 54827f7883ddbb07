import { describe, expect, it } from "vitest";
import { duration, jsonTokens, pieces, plain, reward } from "../src/format";
import { heat } from "../src/tokens";

const shown = (text: string) =>
  pieces(text)
    .map((one) => one.text)
    .join("");

describe("texts of others", () => {
  it("show what would not be seen", () => {
    expect(shown("\u001b[31mred\u0000")).toBe("\\x1b[31mred\\x00");
    expect(shown("\u202eabc\u200b\ufeff\ud800")).toBe("\\u202eabc\\u200b\\ufeff\\ud800");
    expect(pieces("a\u001b\u001bb").map((one) => one.escaped)).toEqual([false, true, false]);
  });
  it("are otherwise left alone", () => {
    for (const text of ["", "plain\n\tlines", "<script>", "日本語 é 👩‍🔬"]) {
      expect(shown(text)).toBe(text);
      expect(pieces(text).every((one) => !one.escaped)).toBe(true);
    }
  });
  it("are on one line where there is one line", () => {
    expect(plain("a\n\nb\u0007")).toBe("a b\\x07");
  });
});

describe("JSON", () => {
  it("is taken apart without loss", () => {
    const text = JSON.stringify({ 'a:"b': [1, -2.5e-30, true, null, "c\\"], "": {} }, null, 2);
    const tokens = jsonTokens(text);
    expect(tokens.map((one) => one.text).join("")).toBe(text);
    expect(tokens.filter((one) => one.kind === "key").length).toBe(2);
    expect(tokens.filter((one) => one.kind === "number").map((one) => one.text)).toEqual([
      "1",
      "-2.5e-30",
    ]);
  });
  it("need not be JSON", () => {
    for (const text of ['{"half', '\\"', "no json at all: 12"]) {
      expect(
        jsonTokens(text)
          .map((one) => one.text)
          .join(""),
      ).toBe(text);
    }
  });
});

it("numbers are for people", () => {
  expect(reward(null)).toBe("–");
  expect(reward(0.123456)).toBe("0.123");
  expect([0, 5, 1500, 2_500_000, 600_000_000].map(duration)).toEqual([
    "–",
    "5 µs",
    "1.50 ms",
    "2.50 s",
    "10 min",
  ]);
});

it("the less likely a token, the hotter", () => {
  expect([null, 0, -0.1, -0.5, -1, -2, -9].map(heat)).toEqual([-1, 0, 1, 2, 3, 4, 5]);
});
