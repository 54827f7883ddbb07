// The data of a bundle: scripts beside the page, since a page opened from a file may load no others.

import { withImages } from "./images";
import { type BundleRow, overviewOf, selected } from "./select";
import type { Detail, Facets, Overview, Row, Shown, Source, Status, Tokens } from "./types";

interface Index {
  rollouts: BundleRow[];
  facets: Facets;
  chosen: number;
  sources: Shown[];
}

type Bundled = Omit<Detail, "summary"> & { tokens: Record<string, Tokens> };

declare global {
  interface Window {
    gymmeshPart?: (name: string, text: string) => void;
  }
}

const arrived = new Map<string, unknown>();

// The index of the bundle that the page is in; null where it is in none.
export async function openBundle(): Promise<Source | null> {
  window.gymmeshPart = (name, text) => arrived.set(name, JSON.parse(text));
  const index = (await part("index")) as Index | null;
  return index && new BundleSource(index);
}

class BundleSource implements Source {
  readonly live = false;
  private readonly byKey: Map<string, BundleRow>;

  constructor(private readonly index: Index) {
    this.byKey = new Map(index.rollouts.map((row) => [row.key, row]));
  }

  async status(): Promise<Status> {
    const { rollouts, chosen, sources } = this.index;
    const left = chosen - rollouts.length;
    const problems =
      left > 0 ? [`Rollouts that are not on this page because of --limit: ${left}.`] : [];
    return {
      state: "ready",
      error: "",
      done: 0,
      bytes: 0,
      wrong: 0,
      changes: 0,
      rollouts: rollouts.length,
      problems,
      sources,
    };
  }

  async rows(query: URLSearchParams, offset: number, limit: number): Promise<Row[]> {
    return selected(this.index.rollouts, query).slice(offset, offset + limit);
  }

  async count(query: URLSearchParams): Promise<number> {
    return selected(this.index.rollouts, query).length;
  }

  async facets(): Promise<Facets> {
    return this.index.facets;
  }

  async rollout(key: string): Promise<Detail> {
    return this.found(key);
  }

  async tokens(key: string, call: number, thread: number): Promise<Tokens> {
    const found = await this.found(key);
    const none = { ids: [], logprobs: null, texts: null, left: 0, tokenizer: "", problem: "" };
    return found.tokens[`${thread}.${call}`] ?? none;
  }

  async task(name: string): Promise<Row[]> {
    return this.index.rollouts
      .filter((row) => row.task === name)
      .sort((a, b) => a.source - b.source || a.repeat - b.repeat);
  }

  async overview(query: URLSearchParams): Promise<Overview> {
    return overviewOf(selected(this.index.rollouts, query));
  }

  raw(): null {
    return null;
  }

  private async found(key: string): Promise<Bundled & Detail> {
    const row = this.byKey.get(key);
    const details = row && ((await part(String(row.part))) as Record<string, Bundled> | null);
    const detail = details && Object.hasOwn(details, key) ? details[key] : undefined;
    if (!row || !detail)
      throw new Error("This page does not contain the rollout. Open another rollout in the table.");
    return { ...withImages(detail), summary: row };
  }
}

function part(name: string): Promise<unknown> {
  if (arrived.has(name)) return Promise.resolve(arrived.get(name));
  return new Promise((resolve) => {
    const script = document.createElement("script");
    script.src = `data/${name}.js`;
    script.onload = () => resolve(arrived.get(name) ?? null);
    script.onerror = () => resolve(null);
    document.head.append(script);
  });
}
