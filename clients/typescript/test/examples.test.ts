/** The collect example by itself; tests/clients runs the examples in a mesh. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";

const PROGRAM = fileURLToPath(new URL("../examples/collect/main.js", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "gymmesh-"));

/** Runs it to its end; gives its exit code. */
function collect(...args: string[]): Promise<number> {
  return new Promise((resolve) => {
    const child = execFile(process.execPath, [PROGRAM, ...args], { cwd: folder });
    child.on("exit", (code) => resolve(code ?? -1));
  });
}

describe("the collect example", () => {
  it("says by its exit code what it could not do", async () => {
    const tasks = join(folder, "tasks.jsonl");
    writeFileSync(tasks, '{"task_id": "t", "responses_create_params": {"input": "hi"}}\n');
    const given = ["--input", tasks, "--output", join(folder, "none.jsonl")];
    assert.equal(await collect(...given), 2);
    assert.equal(await collect("--agent", "127.0.0.1:9", ...given), 1);
    assert.equal(await collect("--agent", "x", ...given, "--concurrency", "0"), 2);
    assert.equal(await collect("--agent", "x", ...given, "--unheard-of"), 2);
  });
});
