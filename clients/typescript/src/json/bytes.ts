/** What bytes are in JSON, by the option of their field. */
import { BytesForm } from "../gen/gymmesh/json/v1/json_pb.js";
import { CodecError } from "./errors.js";
import { bytesToText, textToBytes } from "./text.js";
import type { JsonValue } from "./value.js";

const WIDTH = 4; // bytes of a token id, and of a log probability

/** Bytes as JSON; throws CodecError. */
export function bytesToValue(bytes: Uint8Array, form: BytesForm): JsonValue {
  switch (form) {
    case BytesForm.CUT_TEXT:
      return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
    case BytesForm.INT32:
      return unpacked(bytes, (view, at) => {
        const id = view.getInt32(at, true);
        if (id < 0) throw new CodecError(`${id} is negative`);
        return BigInt(id);
      });
    case BytesForm.FLOAT32:
      return unpacked(bytes, (view, at) => {
        const one = view.getFloat32(at, true);
        return Number.isFinite(one) ? one : null;
      });
    case BytesForm.HEX:
      return Buffer.from(bytes).toString("hex");
    case BytesForm.BASE64:
      return Buffer.from(bytes).toString("base64");
    default:
      return bytesToText(bytes);
  }
}

/** The bytes that a value stands for; undefined when it does not fit. */
export function valueToBytes(value: JsonValue, form: BytesForm): Uint8Array | undefined {
  if (form === BytesForm.INT32 || form === BytesForm.FLOAT32) return packed(value, form);
  if (typeof value !== "string") return undefined;
  const isCoded = form === BytesForm.HEX || form === BytesForm.BASE64;
  const bytes = isCoded
    ? Buffer.from(value, form === BytesForm.HEX ? "hex" : "base64")
    : textToBytes(value);
  // Node reads as far as it can.
  return isCoded && bytesToValue(bytes, form) !== value ? undefined : bytes;
}

/** Token ids (little-endian int32) as numbers; throws CodecError. */
export function tokenIds(bytes: Uint8Array): number[] {
  return unpacked(bytes, (view, at) => view.getInt32(at, true));
}

/** Log probabilities (little-endian float32) as numbers; throws CodecError. */
export function logprobs(bytes: Uint8Array = new Uint8Array()): number[] {
  return unpacked(bytes, (view, at) => view.getFloat32(at, true));
}

function unpacked<T>(bytes: Uint8Array, read: (view: DataView, at: number) => T): T[] {
  if (bytes.length % WIDTH)
    throw new CodecError(`${bytes.length} bytes are not numbers of 4 bytes`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Array.from({ length: bytes.length / WIDTH }, (_, at) => read(view, at * WIDTH));
}

function packed(value: JsonValue, form: BytesForm): Uint8Array | undefined {
  if (!Array.isArray(value)) return undefined;
  const bytes = new Uint8Array(value.length * WIDTH);
  const view = new DataView(bytes.buffer);
  for (const [at, one] of value.entries()) {
    if (form === BytesForm.INT32) {
      if (typeof one !== "bigint" || BigInt.asUintN(31, one) !== one) return undefined;
      view.setInt32(at * WIDTH, Number(one), true);
    } else {
      if (one !== null && typeof one !== "number" && typeof one !== "bigint") return undefined;
      // A number that was not finite is null; which one it was is not kept.
      view.setFloat32(at * WIDTH, one === null ? Number.NaN : Number(one), true);
    }
  }
  return bytes;
}
