/** The examples against gym-cli and the conformance suite, where these are installed. */
import assert from "node:assert/strict";
import { type ChildProcess, execFile, spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import {
  CONTRACT_VERSION,
  type Connection,
  connectAgent,
  dial,
  isObject,
  type JsonObject,
  type JsonValue,
  parseJson,
  register,
  taskFromRow,
  writeJson,
} from "@gymmesh/client";
import { AgentService } from "@gymmesh/client/gen/gymmesh/agent/v1/agent_pb";
import { Health } from "@gymmesh/client/gen/gymmesh/discovery/v1/discovery_pb";
import { FakeAgent, STARTED, WHOLE } from "./fake_agent.js";

const ROOT = fileURLToPath(new URL("../../../../", import.meta.url));
const EXAMPLES = fileURLToPath(new URL("../examples/", import.meta.url));
const PYTHON = join(ROOT, ".venv/bin/python");
const GYM_CLI = process.env["GYM_CLI"] ?? join(ROOT, ".venv/bin/gym-cli");
const TASKS = join(ROOT, "examples/first_environment/tasks.jsonl");
const folder = mkdtempSync(join(tmpdir(), "gymmesh-"));
const run = promisify(execFile);
const children: ChildProcess[] = [];
after(() => {
  for (const child of children) child.kill("SIGTERM");
});

/** Starts a program; gives the first match in what it prints. */
function started(command: string, args: string[], ready: RegExp): Promise<RegExpExecArray> {
  const child = spawn(command, args, { cwd: folder, stdio: ["ignore", "pipe", "pipe"] });
  children.push(child);
  let output = "";
  return new Promise((resolve, reject) => {
    const take = (bytes: Buffer): void => {
      output += bytes.toString();
      const found = ready.exec(output);
      if (found) resolve(found);
    };
    child.stdout.on("data", take);
    child.stderr.on("data", take);
    child.on("exit", () => reject(new Error(`${command} ended: ${output}`)));
  });
}

/** Runs a program to its end; its exit code and what it printed. */
async function ran(command: string, args: string[]): Promise<[number, string]> {
  try {
    const { stdout } = await run(command, args, { cwd: folder });
    return [0, stdout];
  } catch (error) {
    const { code, stdout, stderr } = error as { code: number; stdout: string; stderr: string };
    return [code, stdout + stderr];
  }
}

const collect = (...args: string[]): Promise<[number, string]> =>
  ran(process.execPath, [join(EXAMPLES, "collect/main.js"), ...args]);

/** The rows of a file in order of task and repeat, without ids, times and drawn seeds. */
function rows(name: string): string[] {
  const lines = readFileSync(join(folder, name), "utf8").trim().split("\n");
  const read = lines.map((line) => parseJson(line) as JsonObject);
  const named = (row: JsonObject): string => `${row["task_id"]}/${row["repeat_index"]}`;
  read.sort((left, right) => (named(left) < named(right) ? -1 : 1));
  return read.map((row) => {
    const same = bare(
      row,
      new Set(["rollout_id", "run_id", "id", "created_at", "timings", "stages"]),
    );
    delete ((same as JsonObject)["metadata"] as JsonObject)["seed"];
    return writeJson(sorted(same));
  });
}

function bare(value: JsonValue, without: ReadonlySet<string>): JsonValue {
  if (Array.isArray(value)) return value.map((one) => bare(one, without));
  if (!isObject(value)) return value;
  const kept = Object.entries(value).filter(([key]) => !without.has(key));
  return Object.fromEntries(kept.map(([key, one]) => [key, bare(one, without)]));
}

function sorted(value: JsonValue): JsonValue {
  if (Array.isArray(value)) return value.map(sorted);
  if (!isObject(value)) return value;
  const keys = Object.keys(value).sort();
  return Object.fromEntries(keys.map((key) => [key, sorted(value[key] ?? null)]));
}

const ANSWERS = `{"match": "*", "answers": [{"output": [{"type": "function_call", "name": "add",
 "arguments": "{\\"item\\": \\"bread\\", \\"count\\": 3}", "call_id": "call_1"}]},
 {"text": "Three loaves."}]}`.replaceAll("\n", "");

describe("a mesh of gym-cli", { skip: !existsSync(GYM_CLI) && "gym-cli is not installed" }, () => {
  it("gives the example the rows that it gives gym-cli", { timeout: 180_000 }, async () => {
    writeFileSync(join(folder, "answers.jsonl"), `${ANSWERS}\n`);
    writeFileSync(
      join(folder, "mesh.yaml"),
      `models: {policy: {backend: replay, path: answers.jsonl}}
environments: {shop: {use: "${ROOT}examples/first_environment/shop.py:Shop"}}
defaults: {environment: shop}
`,
    );
    const up = ["up", "--config", "mesh.yaml"];
    const [, agent = ""] = await started(GYM_CLI, up, /collect with: .*--agent (\S+)/);
    const from = ["--agent", agent, "--input", TASKS, "--num-repeats", "3"];
    const [code, printed] = await collect(...from, "--output", "ts.jsonl");
    assert.equal(code, 0, printed);
    const summary = JSON.parse(printed) as { completed: number; agents: Record<string, number> };
    assert.equal(summary.completed, 6);
    assert.deepEqual(Object.values(summary.agents), [6]);
    const [theirs, said] = await ran(GYM_CLI, ["collect", ...from, "--output", "py.jsonl"]);
    assert.equal(theirs, 0, said);
    assert.deepEqual(rows("ts.jsonl"), rows("py.jsonl"));
  });
});

/** Whether gym-cli can serve xDS, which takes an extra of its own. */
const hasXds = existsSync(GYM_CLI) && spawnSync(GYM_CLI, ["xds", "--help"]).status === 0;

describe("agents behind xds:///", { skip: !hasXds && "gym-cli has no xds" }, () => {
  /** An agent whose attempts take a while, registered. */
  async function agentOf(registry: Connection, id: string): Promise<FakeAgent> {
    const fake = new FakeAgent(
      async function* () {
        yield STARTED(id);
        await new Promise((resolve) => setTimeout(resolve, 100));
        yield* WHOLE.slice(1);
      },
      { instanceId: id },
    );
    const address = await fake.start();
    const service = AgentService.typeName;
    const instance = { id, service, name: "fake", address, contractVersion: CONTRACT_VERSION };
    await register(registry, { ...instance, health: Health.SERVING });
    return fake;
  }

  it("share the rollouts, and one that dies loses none", { timeout: 180_000 }, async () => {
    writeFileSync(join(folder, "answers.jsonl"), `${ANSWERS}\n`);
    writeFileSync(
      join(folder, "xds.yaml"),
      `models: {policy: {backend: replay, path: answers.jsonl}}
environments: {shop: {use: "${ROOT}examples/first_environment/shop.py:Shop"}}
defaults: {environment: shop}
discovery: {xds: true}
`,
    );
    const ready = /registry +(\S+)[\s\S]*^ready/m;
    const [, address = ""] = await started(GYM_CLI, ["up", "--config", "xds.yaml"], ready);
    const [code, bootstrap] = await ran(GYM_CLI, ["xds", "bootstrap", "--server", address]);
    assert.equal(code, 0, bootstrap);
    writeFileSync(join(folder, "bootstrap.json"), bootstrap);
    process.env["GRPC_XDS_BOOTSTRAP"] = join(folder, "bootstrap.json");
    const registry = await dial(address);
    const [one, two] = [await agentOf(registry, "one"), await agentOf(registry, "two")];
    const agent = await connectAgent("xds:///agent.fake");
    const tasks = Array.from({ length: 60 }, (_, at) =>
      taskFromRow(`{"task_id":"t${at}","responses_create_params":{"input":"hi"}}`, agent.defaults),
    );
    const counts = new Map<string, number>();
    for await (const outcome of agent.collect(tasks, { concurrency: 12 })) {
      assert.equal(outcome.kind, "completed");
      const { agentInstanceId: id } = outcome;
      counts.set(id, (counts.get(id) ?? 0) + 1);
      if (counts.get("one") === 5) one.stop();
    }
    const [first = 0, second = 0] = [counts.get("one"), counts.get("two")];
    assert.equal(first + second, 60);
    assert.ok(first >= 5 && second > 30, `${first} at one, ${second} at two`);
    agent.close();
    registry.close();
    two.stop();
  });
});

describe("the collect example", () => {
  it("says by its exit code what it could not do", async () => {
    const given = ["--input", TASKS, "--output", join(folder, "none.jsonl")];
    assert.equal((await collect(...given))[0], 2);
    assert.equal((await collect("--agent", "127.0.0.1:9", ...given))[0], 1);
    assert.equal((await collect("--agent", "x", ...given, "--concurrency", "0"))[0], 2);
  });
});

describe("the environment", { skip: !existsSync(PYTHON) && "Python is not installed" }, () => {
  it("passes the conformance suite", { timeout: 180_000 }, async () => {
    const main = join(EXAMPLES, "environment/main.js");
    const [address] = await started(process.execPath, [main], /127\.0\.0\.1:\d+/);
    const profile = join(ROOT, "clients/typescript/examples/environment/profile.yaml");
    const suite = ["-m", "gymmesh_conformance", "--resource", address, "--profile", profile];
    const [code, printed] = await ran(PYTHON, suite);
    assert.equal(code, 0, printed);
    assert.match(printed, /3\d passed, 0 failed|[4-9]\d passed, 0 failed/);
  });
});
