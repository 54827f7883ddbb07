// The data of a server: gym-cli view's own.

import { withImages } from "./images";
import { filtersOf } from "./route";
import type { Detail, Facets, Overview, Row, Source, Status, Tokens } from "./types";

export class ServerSource implements Source {
  readonly live = true;

  status(): Promise<Status> {
    return get("status");
  }

  async rows(query: URLSearchParams, offset: number, limit: number): Promise<Row[]> {
    const asked = filtersOf(query);
    asked.set("sort", query.get("sort") ?? "order");
    asked.set("offset", String(offset));
    asked.set("limit", String(limit));
    return (await get<{ rows: Row[] }>("rollouts", asked)).rows;
  }

  async count(query: URLSearchParams): Promise<number> {
    return (await get<{ count: number }>("count", filtersOf(query))).count;
  }

  facets(): Promise<Facets> {
    return get("facets");
  }

  async rollout(key: string): Promise<Detail> {
    return withImages(await get<Detail>("rollout", new URLSearchParams({ key })));
  }

  tokens(key: string, call: number, thread: number): Promise<Tokens> {
    const asked = new URLSearchParams({ key, call: String(call), thread: String(thread) });
    return get("tokens", asked);
  }

  async task(name: string): Promise<Row[]> {
    return (await get<{ rows: Row[] }>("task", new URLSearchParams({ task: name }))).rows;
  }

  overview(query: URLSearchParams): Promise<Overview> {
    return get("overview", filtersOf(query));
  }

  raw(key: string): string {
    return `api/raw?${new URLSearchParams({ key })}`;
  }
}

async function get<T>(name: string, query?: URLSearchParams): Promise<T> {
  let response: Response;
  try {
    response = await fetch(`api/${name}${query ? `?${query}` : ""}`);
  } catch {
    throw new Error("gym-cli view does not answer. Check that the command is still running.");
  }
  if (response.status === 403) {
    throw new Error("The session has ended. Open the address that gym-cli view printed.");
  }
  const said = (await response.json()) as T & { error?: string };
  if (!response.ok) throw new Error(said.error ?? response.statusText);
  return said;
}
