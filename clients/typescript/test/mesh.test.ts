/** The examples against gym-cli and the conformance suite, where these are installed. */
import assert from "node:assert/strict";
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { isObject, type JsonObject, type JsonValue, parseJson, writeJson } from "@gymmesh/client";

const ROOT = fileURLToPath(new URL("../../../../", import.meta.url));
const EXAMPLES = fileURLToPath(new URL("../examples/", import.meta.url));
const PYTHON = join(ROOT, ".venv/bin/python");
const GYM_CLI = join(ROOT, ".venv/bin/gym-cli");
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
