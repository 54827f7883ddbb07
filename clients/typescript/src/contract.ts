/** The contract's version that this client speaks. */
import { MeshError } from "./errors.js";

export const CONTRACT_VERSION = "1.0";

/** Throws CONTRACT_MISMATCH when a peer speaks another major version; an empty one is ours. */
export function checkContract(theirs: string, who: string): void {
  const major = (version: string): string => version.split(".", 1)[0] ?? "";
  if (!theirs || major(theirs) === major(CONTRACT_VERSION)) return;
  const metadata = { ours: CONTRACT_VERSION, theirs };
  const message = `${who} speaks contract version ${theirs}, this client ${CONTRACT_VERSION}`;
  throw new MeshError("CONTRACT_MISMATCH", message, { metadata });
}
