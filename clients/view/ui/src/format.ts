// Numbers and texts for people.

// What a reader cannot see, or what turns the direction of text around, is written out.
// The same characters as gymmesh_runtime/text/plain_text.py, from first to last.
const HIDDEN: [number, number][] = [
  [0x00, 0x08],
  [0x0b, 0x1f],
  [0x7f, 0x9f],
  [0x61c, 0x61c],
  [0x200b, 0x200b],
  [0x200e, 0x200f],
  [0x2028, 0x202e],
  [0x2060, 0x206f],
  [0xfeff, 0xfeff],
  [0xfff9, 0xfffb],
  [0xd800, 0xdfff],
  [0xe0000, 0xe007f],
];

function hidden(code: number): boolean {
  return (
    (code < 0x20 || code > 0x7e) && HIDDEN.some(([first, last]) => first <= code && code <= last)
  );
}

export interface Piece {
  text: string;
  escaped: boolean;
}

export function pieces(text: string): Piece[] {
  const found: Piece[] = [];
  let from = 0;
  for (let at = 0; at < text.length; ) {
    const code = text.codePointAt(at) ?? 0;
    const size = code > 0xffff ? 2 : 1;
    if (hidden(code)) {
      if (at > from) found.push({ text: text.slice(from, at), escaped: false });
      const last = found[found.length - 1];
      if (last?.escaped && at === from) last.text += escapeOf(code);
      else found.push({ text: escapeOf(code), escaped: true });
      from = at + size;
    }
    at += size;
  }
  if (from < text.length || !found.length) found.push({ text: text.slice(from), escaped: false });
  return found;
}

function escapeOf(code: number): string {
  return code <= 0xff
    ? `\\x${code.toString(16).padStart(2, "0")}`
    : `\\u${code.toString(16).padStart(4, "0")}`;
}

// As `pieces`, on one line and as one text: for names and titles.
export function plain(text: string): string {
  return pieces(text.replace(/[\n\t\r]+/g, " "))
    .map((one) => one.text)
    .join("");
}

export function number(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

// A number with its noun: `1 rollout`, `25 rollouts`.
export function some(count: number, noun: string): string {
  return `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
}

export function reward(value: number | null): string {
  if (value === null) return "–";
  return Number.isInteger(value) ? String(value) : String(Number(value.toFixed(3)));
}

export function duration(us: number): string {
  if (!us) return "–";
  if (us < 1_000) return `${us} µs`;
  if (us < 1_000_000) return `${digits(us / 1_000)} ms`;
  if (us < 120_000_000) return `${digits(us / 1_000_000)} s`;
  return `${Math.round(us / 60_000_000)} min`;
}

// Three digits, also where the last are zeros, so that a column of them is even.
function digits(value: number): string {
  return value < 99.95 ? value.toPrecision(3) : String(Math.round(value));
}

export function bytes(count: number): string {
  if (count < 1e6) return `${Math.ceil(count / 1e3)} kB`;
  return count < 1e9 ? `${Math.round(count / 1e6)} MB` : `${(count / 1e9).toFixed(1)} GB`;
}

export function instant(seconds: number | null): string {
  if (seconds === null) return "–";
  return new Date(seconds * 1000).toISOString().replace("T", " ").slice(0, 19);
}

export function words(name: string): string {
  return name.toLowerCase().replaceAll("_", " ");
}

export type JsonToken = { kind: "key" | "string" | "number" | "word" | "sign"; text: string };

const JSON_TOKEN =
  /("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(true|false|null)|([\s\S])/g;

// JSON that is laid out, taken apart for colours.
export function jsonTokens(text: string): JsonToken[] {
  const found: JsonToken[] = [];
  for (const match of text.matchAll(JSON_TOKEN)) {
    const [all, string, colon, digits, word] = match;
    if (string !== undefined) {
      found.push({ kind: colon === undefined ? "string" : "key", text: string });
      if (colon !== undefined) push(found, colon);
    } else if (digits !== undefined) found.push({ kind: "number", text: digits });
    else if (word !== undefined) found.push({ kind: "word", text: word });
    else push(found, all);
  }
  return found;
}

function push(found: JsonToken[], text: string): void {
  const last = found[found.length - 1];
  if (last?.kind === "sign") last.text += text;
  else found.push({ kind: "sign", text });
}
