/** Equality of documents, as the codec's page defines it. */
import { isObject, type JsonValue } from "@gymmesh/client";

/** Whether two values are equal: integers and reals differ, the order of keys does not count. */
export function jsonEqual(left: JsonValue, right: JsonValue): boolean {
  if (Array.isArray(left)) {
    return (
      Array.isArray(right) &&
      left.length === right.length &&
      left.every((value, at) => jsonEqual(value, right[at] as JsonValue))
    );
  }
  if (isObject(left)) {
    if (!isObject(right)) return false;
    const keys = Object.keys(left);
    return (
      keys.length === Object.keys(right).length &&
      keys.every(
        (key) => Object.hasOwn(right, key) && jsonEqual(left[key] ?? null, right[key] ?? null),
      )
    );
  }
  return Object.is(left, right);
}
