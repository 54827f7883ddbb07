/**
 * Collects rollouts of a task file, as `gym-cli collect` does it:
 *
 *   collect --agent TARGET --input tasks.jsonl --output rows.jsonl
 *           [--failures failures.jsonl] [--num-repeats N] [--concurrency C] [--deadline-s S]
 *           [--call-per-rollout] [--ca ca.pem] [--cert own.pem --key own.key] [--server-name NAME]
 *           [--token-file FILE]
 *
 * TARGET is host:port or xds:///agent.NAME; S is what one attempt of a rollout may take. With
 * --call-per-rollout each rollout is a call of its own, which gRPC balances. Exit codes: 0 all
 * completed, 1 nothing did, 2 usage, 3 some failed.
 */
import { once } from "node:events";
import { createWriteStream, readFileSync, type WriteStream } from "node:fs";
import { finished } from "node:stream/promises";
import { parseArgs } from "node:util";
import {
  connectAgent,
  type DialOptions,
  MeshError,
  type Outcome,
  readTasks,
  type Task,
  TaskError,
  writeRow,
} from "@gymmesh/client";

const OPTIONS = {
  agent: { type: "string" },
  input: { type: "string" },
  output: { type: "string" },
  failures: { type: "string" },
  "num-repeats": { type: "string", default: "1" },
  concurrency: { type: "string", default: "64" },
  "deadline-s": { type: "string", default: "900" },
  "call-per-rollout": { type: "boolean", default: false },
  ca: { type: "string" },
  cert: { type: "string" },
  key: { type: "string" },
  "server-name": { type: "string" },
  "token-file": { type: "string" },
} as const;

class UsageError extends Error {}

async function main(): Promise<number> {
  const began = performance.now();
  const { agent: target, input, output, failures, ...given } = optionsOf(process.argv.slice(2));
  const repeats = positive("num-repeats", given["num-repeats"]);
  const concurrency = positive("concurrency", given.concurrency);
  const timeoutMs = positive("deadline-s", given["deadline-s"], false) * 1000;
  const callPerRollout = given["call-per-rollout"];
  const stop = new AbortController();
  process.once("SIGINT", () => stop.abort());
  process.once("SIGTERM", () => stop.abort());

  const agent = await connectAgent(target, dialOptions(given));
  const tasks: Task[] = [];
  for await (const task of readTasks(input, agent.defaults)) tasks.push(task);
  const rows = await created(output);
  const failureRows = failures === undefined ? undefined : await created(failures);
  const agents = new Map<string, number>();
  let completed = 0;
  let failed = 0;
  const how = { repeats, concurrency, timeoutMs, callPerRollout, signal: stop.signal };
  for await (const came of agent.collect(tasks, how)) {
    const [outcome, line] = written(came);
    const file = outcome.kind === "completed" ? rows : failureRows;
    if (outcome.kind === "completed") completed += 1;
    else failed += 1;
    // Waiting for each row to be written would start the rollouts after it one by one.
    if (file?.write(line) === false) await once(file, "drain");
    const { agentInstanceId: id } = outcome;
    if (id) agents.set(id, (agents.get(id) ?? 0) + 1);
  }
  await closed(rows);
  if (failureRows) await closed(failureRows);
  agent.close();
  const wall_s = Math.round(performance.now() - began) / 1000;
  console.log(JSON.stringify({ completed, failed, wall_s, agents: Object.fromEntries(agents) }));
  if (stop.signal.aborted) return 130;
  if (!completed) return 1;
  return failed ? 3 : 0;
}

/** An outcome and its line; one that cannot be written has become a failure. */
function written(outcome: Outcome): [Outcome, string] {
  try {
    return [outcome, `${writeRow(outcome.row())}\n`];
  } catch (error) {
    const failed = outcome.unwritable(error);
    return [failed, `${writeRow(failed.row())}\n`];
  }
}

async function created(path: string): Promise<WriteStream> {
  const file = createWriteStream(path);
  await once(file, "open");
  return file;
}

async function closed(file: WriteStream): Promise<void> {
  file.end();
  await finished(file);
}

function optionsOf(args: string[]) {
  try {
    const { values } = parseArgs({ args, options: OPTIONS });
    const { agent, input, output } = values;
    if (!agent || !input || !output)
      throw new UsageError("--agent, --input and --output are needed");
    return { ...values, agent, input, output };
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}

type Given = { [K in "ca" | "cert" | "key" | "server-name" | "token-file"]?: string | undefined };

function dialOptions({ ca, cert, key, ...others }: Given): DialOptions {
  const { "server-name": serverName, "token-file": tokenFile } = others;
  if (!cert !== !key) throw new UsageError("--cert and --key go together");
  if (!ca && (cert || serverName)) throw new UsageError("--cert and --server-name need --ca");
  const tls = ca && {
    authority: contentOf(ca),
    ...(cert && key && { certificate: contentOf(cert), key: contentOf(key) }),
    ...(serverName && { serverName }),
  };
  return { ...(tls && { tls }), ...(tokenFile && { token: `${contentOf(tokenFile)}`.trim() }) };
}

function contentOf(path: string): Buffer {
  try {
    return readFileSync(path);
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : path);
  }
}

function positive(name: string, text: string, whole = true): number {
  const value = Number(text);
  if (value > 0 && Number.isFinite(value) && (!whole || Number.isInteger(value))) return value;
  throw new UsageError(`--${name} ${text}: must be a ${whole ? "whole " : ""}number above 0`);
}

function textOf(error: MeshError | TaskError): string {
  return `${error instanceof MeshError ? error.reason : error.name}: ${error.message}`;
}

main().then(
  (code) => {
    process.exitCode = code;
  },
  (error: unknown) => {
    const isTheirs = error instanceof MeshError || error instanceof TaskError;
    console.error(isTheirs ? textOf(error) : error);
    process.exitCode = error instanceof UsageError || error instanceof TaskError ? 2 : 1;
  },
);
