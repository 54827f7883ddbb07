/** What the codec refuses. */

/** A step of a path into a document: a key or an index. */
export type Step = string | number;

/** A document that is not JSON, or a message that JSON cannot hold; names the place. */
export class CodecError extends Error {
  override readonly name = "CodecError";

  constructor(
    readonly problem: string,
    readonly path: readonly Step[] = [],
  ) {
    super(path.length ? `${spelled(path)}: ${problem}` : problem);
  }

  /** The same problem, seen from one level further out. */
  within(step: Step): CodecError {
    return new CodecError(this.problem, [step, ...this.path]);
  }
}

/** Runs `convert`; a CodecError that it throws names the step. */
export function under<T>(step: Step, convert: () => T): T {
  try {
    return convert();
  } catch (error) {
    throw error instanceof CodecError ? error.within(step) : error;
  }
}

function spelled(path: readonly Step[]): string {
  return path
    .map((step, at) => (typeof step === "number" ? `[${step}]` : at ? `.${step}` : step))
    .join("");
}
