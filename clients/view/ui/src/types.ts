// What the page's API answers; clients/view/gymmesh_view/reading.py makes it.

export interface Row {
  key: string;
  rollout_id: string;
  task: string;
  repeat: number;
  attempt: number;
  environment: string;
  agent: string;
  model: string;
  reward: number | null;
  verdict: string;
  stop: string;
  boundary: string;
  cause: string;
  failed: boolean;
  turns: number;
  tool_calls: number;
  input_tokens: number;
  output_tokens: number;
  duration_us: number;
  started_at: number | null;
  flags: number;
  tags: string[];
  title: string;
  source: number;
  run: string;
  // Of a task's rollouts, where a file has several runs.
  run_id?: string;
}

export interface Part {
  as: "text" | "json" | "image" | "note";
  text: string;
  // Of an image: its number among those of the rollout, and what it is in words.
  image?: number;
  alt?: string;
  left?: number;
  annotations?: string;
  refusal?: boolean;
  invalid?: boolean;
}

export interface Item {
  kind: "message" | "reasoning" | "call" | "result" | "other";
  role: string;
  prompt: boolean;
  answered?: boolean;
  parts: Part[];
  call?: number;
  tokens?: boolean;
  name?: string;
  call_id?: string;
  // Of a tool result: which error it is, such as TOOL_ERROR.
  error?: string;
}

export interface Call {
  call: number;
  prompt: number;
  sampled: number;
  shared: number;
  fork: boolean;
  mean_logprob: number | null;
  least_logprob: number | null;
}

export interface Stage {
  name: string;
  kind: string;
  duration_us: number;
  note: string;
}

export interface Span {
  name: string;
  note: string;
  kind: string;
  actor: string;
  start_us: number;
  duration_us: number;
}

export interface Actor {
  name: string;
  reward: number | null;
  about: string;
  conversations: Thread[];
}

// A conversation of an actor; `thread` is its number among all of the rollout, from 1.
export interface Thread {
  thread: number;
  after: string;
  items: Item[];
  items_left?: number;
  calls: Call[];
}

export interface Verification {
  status: string;
  reason: string;
  verifier: string;
  version: string;
  components: { name: string; value: number | null; weight: number | null }[];
  evidence: string;
}

export interface Failure {
  boundary: string;
  reason: string;
  message: string;
  retry_safe: boolean;
  /** Whether the code is at fault: a retry fails again until it is fixed. */
  repeats: boolean;
  component: string;
  call_id: string;
  metadata: string;
}

export interface Detail {
  summary: Row;
  where: string;
  run_id: string;
  stop_detail: string;
  instructions: string;
  tools: { name: string; description: string; parameters: string }[];
  images: string[];
  items: Item[];
  items_left: number;
  actors: Actor[];
  calls: Call[];
  forks: { call_id: string; reason: string; common_tokens: number }[];
  side_calls: string;
  tool_rewards: string;
  turns: string;
  annotations: string;
  weights: number[];
  verification: Verification | null;
  failure: Failure | null;
  timeline: { duration_us: number; stages: Stage[]; spans: Span[] };
  params: string;
  metadata: string;
  others: string;
}

export interface Tokens {
  ids: (number | null)[];
  logprobs: (number | null)[] | null;
  texts: (string | null)[] | null;
  left: number;
  // The file that the texts are of; empty where the row has them.
  tokenizer: string;
  // Why there are no texts, or why they may be wrong.
  problem: string;
}

// `least` and `most` are the values at its ends, which are null where it has none.
export interface Bin {
  from: number;
  to: number;
  count: number;
  least: number | null;
  most: number | null;
}

export interface Overview {
  totals: {
    rollouts: number;
    failed: number;
    rewarded: number;
    mean_reward: number | null;
    min_reward: number | null;
    max_reward: number | null;
    turns: number | null;
    output_tokens: number | null;
    duration_us: number | null;
    tasks: number;
    input_total: number | null;
    output_total: number | null;
  };
  environments: {
    name: string;
    rollouts: number;
    failed: number;
    mean_reward: number | null;
    turns: number | null;
  }[];
  stops: { name: string; count: number }[];
  causes: { boundary: string; name: string; count: number }[];
  rewards: Bin[];
  turns: Bin[];
}

export interface Status {
  state: string;
  error: string;
  done: number;
  bytes: number;
  wrong: number;
  changes: number;
  rollouts: number;
  problems: string[];
  sources: Shown[];
}

// A run or a file; `state` is running, finished, ended early or not ended, and empty of a file.
export interface Shown {
  path: string;
  run: boolean;
  state: string;
}

export type Facets = Record<string, string[]>;

// Where the page gets its data: a server, or a bundle's files.
export interface Source {
  readonly live: boolean;
  status(): Promise<Status>;
  rows(query: URLSearchParams, offset: number, limit: number): Promise<Row[]>;
  count(query: URLSearchParams): Promise<number>;
  facets(): Promise<Facets>;
  rollout(key: string): Promise<Detail>;
  tokens(key: string, call: number, thread: number): Promise<Tokens>;
  task(name: string): Promise<Row[]>;
  overview(query: URLSearchParams): Promise<Overview>;
  // The address of the row as it stands in its file; none in a bundle.
  raw(key: string): string | null;
}
