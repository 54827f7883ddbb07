/** Sums that fit their column: beyond its range, the number in it that is nearest. Pure. */

/** The largest uint32. */
export const MOST_UINT32 = 2 ** 32 - 1;
const MOST_INT64 = 2n ** 63n - 1n;
const LEAST_INT64 = -(2n ** 63n);
const MOST_UINT64 = 2n ** 64n - 1n;

type Numbers = readonly (bigint | undefined)[];

/** The sum as an int64. */
export function sumInt64(numbers: Numbers): bigint {
  const total = sum(numbers);
  if (total > MOST_INT64) return MOST_INT64;
  return total < LEAST_INT64 ? LEAST_INT64 : total;
}

/** The sum as a uint64. */
export function sumUint64(numbers: Numbers): bigint {
  const total = sum(numbers);
  return total > MOST_UINT64 ? MOST_UINT64 : total;
}

function sum(numbers: Numbers): bigint {
  return numbers.reduce<bigint>((all, one) => all + (one ?? 0n), 0n);
}
