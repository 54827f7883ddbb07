// The page's whole state is in the URL behind the #, so that a link shows what one sees.

export type View = "table" | "rollout" | "task" | "diff" | "overview";

export interface Route {
  view: View;
  args: string[];
  query: URLSearchParams;
}

// What chooses rollouts; gymmesh_view/rows/filters.py reads the same names.
export const FILTERS = [
  "text",
  "run",
  "environment",
  "agent",
  "model",
  "task",
  "outcome",
  "stop",
  "boundary",
  "cause",
  "verdict",
  "tag",
  "tool",
  "actor",
  "min_reward",
  "max_reward",
  "no_reward",
  "min_turns",
  "max_turns",
  "tokens",
] as const;

const ARGS: Record<View, number> = { table: 0, rollout: 1, task: 1, diff: 2, overview: 0 };

export function parseRoute(hash: string): Route {
  const [path = "", search = ""] = split(hash.replace(/^#\/?/, ""), "?");
  const [name = "", ...rest] = path.split("/");
  const query = new URLSearchParams(search);
  const view = (name || "table") as View;
  const args = rest.map(decoded);
  if (!(view in ARGS) || args.length !== ARGS[view] || args.some((one) => !one)) {
    return { view: "table", args: [], query };
  }
  return { view, args, query };
}

export function hrefOf(view: View, args: string[] = [], query?: URLSearchParams): string {
  const path = [view === "table" ? "" : view, ...args.map(encodeURIComponent)].join("/");
  const search = query?.toString() ?? "";
  return `#/${path}${search ? `?${search}` : ""}`;
}

// The part of a query that chooses rollouts.
export function filtersOf(query: URLSearchParams): URLSearchParams {
  const found = new URLSearchParams();
  for (const name of FILTERS) {
    for (const value of query.getAll(name)) if (value) found.append(name, value);
  }
  return found;
}

// A query with a key set anew, or without it; what is not about places in the table stays.
export function withValue(query: URLSearchParams, key: string, value: string): URLSearchParams {
  const changed = new URLSearchParams(query);
  changed.delete(key);
  if (value) changed.set(key, value);
  if (key !== "page") changed.delete("page");
  changed.delete("at");
  return changed;
}

function split(text: string, sign: string): [string, string] {
  const at = text.indexOf(sign);
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}
