/**
 * Text and bytes. `arguments`, tool outputs and `*_json` fields may hold an unpaired surrogate in
 * its three-byte (WTF-8) form, which TextEncoder and TextDecoder would replace.
 */
import { CodecError } from "./errors.js";

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const UNPAIRED = /\p{Surrogate}/u;

/** Whether a text has an unpaired surrogate, which a protobuf string cannot hold. */
export function hasUnpaired(text: string): boolean {
  return UNPAIRED.test(text);
}

/** UTF-8, in which an unpaired surrogate takes its three-byte form. */
export function textToBytes(text: string): Uint8Array {
  if (!hasUnpaired(text)) return encoder.encode(text);
  const parts: Uint8Array[] = [];
  for (const character of text) {
    const point = character.codePointAt(0) ?? 0;
    parts.push(
      point >= 0xd800 && point <= 0xdfff
        ? Uint8Array.of(0xe0 | (point >> 12), 0x80 | ((point >> 6) & 0x3f), 0x80 | (point & 0x3f))
        : encoder.encode(character),
    );
  }
  return Buffer.concat(parts);
}

/**
 * The inverse of `textToBytes`.
 *
 * @throws CodecError when the bytes are neither UTF-8 nor WTF-8.
 */
export function bytesToText(bytes: Uint8Array): string {
  try {
    return decoder.decode(bytes);
  } catch {
    return decodeWtf8(bytes);
  }
}

function decodeWtf8(bytes: Uint8Array): string {
  let text = "";
  let plain = 0;
  for (let at = 0; at < bytes.length; at++) {
    // A surrogate is ED A0..BF xx; everything between two of them must be UTF-8.
    const second = bytes[at + 1] ?? 0;
    const third = bytes[at + 2] ?? 0;
    if (bytes[at] !== 0xed || second < 0xa0 || second > 0xbf || (third & 0xc0) !== 0x80) continue;
    text += strictly(bytes, plain, at);
    text += String.fromCharCode(0xd000 | ((second & 0x3f) << 6) | (third & 0x3f));
    at += 2;
    plain = at + 1;
  }
  return text + strictly(bytes, plain, bytes.length);
}

function strictly(bytes: Uint8Array, from: number, to: number): string {
  try {
    return decoder.decode(bytes.subarray(from, to));
  } catch {
    throw new CodecError("not UTF-8");
  }
}

/** Texts in the order of their code points, which the order of UTF-16 units is not. */
export function inOrder(texts: Iterable<string>): string[] {
  return [...texts].sort((one, other) => Buffer.compare(textToBytes(one), textToBytes(other)));
}
