/** Calls and services over grpc-js: errors, deadlines, credentials, large messages. */
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";
import { create } from "@bufbuild/protobuf";
import { anyPack } from "@bufbuild/protobuf/wkt";
import { Metadata, Server, ServerCredentials, type ServerWritableStream } from "@grpc/grpc-js";
import {
  addService,
  type Connection,
  dial,
  fromStatus,
  MeshError,
  newServer,
  RunControl,
  register,
  serviceClient,
  toStatus,
} from "@gymmesh/client";
import { Code } from "@gymmesh/client/gen/google/rpc/code_pb";
import { StatusSchema } from "@gymmesh/client/gen/google/rpc/status_pb";
import { DiscoveryService } from "@gymmesh/client/gen/gymmesh/discovery/v1/discovery_pb";
import { ModelUsageSchema } from "@gymmesh/client/gen/gymmesh/errors/v1/errors_pb";
import { ResourceService } from "@gymmesh/client/gen/gymmesh/resource/v1/resource_pb";
import { Boundary } from "@gymmesh/client/gen/gymmesh/rollout/v1/rollout_pb";
import { RunService, RunState } from "@gymmesh/client/gen/gymmesh/run/v1/run_pb";
import { until } from "./fake_agent.js";

const server = newServer();
const timeoutMs = 60_000;
let connection: Connection;
let target = "";
let left = 0;
const said: string[] = [];

before(async () => {
  addService(server, ResourceService, {
    getEnvironment: () => {
      throw new Error("the password is xyzzy");
    },
    listTools: async (_, { signal }) => {
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      left += 1;
      return {};
    },
    createSession: ({ task }) => {
      const usage = create(ModelUsageSchema, { usage: [{ model: "judge", calls: 2 }] });
      const metadata = { limit: "2", task_id: task?.taskId ?? "" };
      const details = [anyPack(ModelUsageSchema, usage)];
      throw new MeshError("SESSION_LIMIT", "full", { metadata, retryAfterMs: 1500, details });
    },
    callTool: (request) => ({ output: { case: "text", value: request.arguments } }),
  });
  addService(server, RunService, {
    listRuns: ({ pageToken }, { metadata }) => {
      if (metadata.get("authorization")[0] !== "Bearer t0ken") {
        throw new MeshError("CREDENTIAL_INVALID", "who?");
      }
      return pageToken
        ? { runs: [{ runId: "b" }] }
        : { runs: [{ runId: "a" }], nextPageToken: "1" };
    },
    controlRun: ({ runId, command }) => {
      said.push(`${runId} ${command.case}`);
      return { run: { runId, state: RunState.PAUSED } };
    },
    streamGroups: async function* ({ afterCursor }, { signal }) {
      for (let cursor = afterCursor + 1n; !signal.aborted; cursor++) {
        yield { cursor };
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      left += 10;
    },
  });
  let leases = 0;
  addService(server, DiscoveryService, {
    register: ({ instance }) => {
      said.push(`register ${instance?.id}`);
      leases += 1;
      return { leaseId: `lease-${leases}`, leaseS: 0 };
    },
    renew: ({ leaseId }) => {
      said.push(`renew ${leaseId}`);
      if (leaseId === "lease-1") throw new MeshError("LEASE_NOT_FOUND", "it ran out");
      return { leaseS: 30 };
    },
    deregister: ({ leaseId }) => {
      said.push(`deregister ${leaseId}`);
      return {};
    },
  });
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) => {
      if (error) reject(error);
      else resolve(bound);
    });
  });
  target = `127.0.0.1:${port}`;
  connection = await dial(target);
});

after(() => {
  connection.close();
  server.forceShutdown();
});

async function failure(call: Promise<unknown>): Promise<MeshError> {
  const error: unknown = await call.then(
    () => assert.fail("the call succeeded"),
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof MeshError, String(error));
  return error;
}

describe("a call that fails", () => {
  const resource = () => serviceClient(ResourceService, connection);

  it("carries reason, metadata, time to retry and further details", async () => {
    const request = { task: { taskId: "t" }, requestId: "r" };
    const error = await failure(resource().createSession(request, { timeoutMs }));
    assert.equal(error.reason, "SESSION_LIMIT");
    assert.equal(error.code, Code.RESOURCE_EXHAUSTED);
    assert.equal(error.retrySafe, true);
    assert.deepEqual({ ...error.metadata }, { limit: "2", task_id: "t" });
    assert.equal(error.retryAfterMs, 1500);
    assert.equal(error.details.length, 1);
  });

  it("says nothing of what its server did not foresee", async () => {
    const error = await failure(resource().getEnvironment({}, { timeoutMs }));
    assert.equal(error.reason, "INTERNAL_FAULT");
    assert.doesNotMatch(error.message, /xyzzy/);
  });

  it("names the REQUIRED field that is missing", async () => {
    const error = await failure(resource().createSession({ requestId: "r" }, { timeoutMs }));
    assert.equal(error.reason, "REQUIRED_FIELD_MISSING");
    assert.equal(error.metadata["field"], "task");
  });

  it("is FIELD_INVALID when the request is no message", async () => {
    const path = "/gymmesh.resource.v1.ResourceService/CallTool";
    const bytes = Buffer.from([0xff, 0xff, 0xff]);
    const same = (one: Buffer): Buffer => one;
    const code = await new Promise((resolve) => {
      connection.client.makeUnaryRequest(path, same, same, bytes, new Metadata(), (error) =>
        resolve(error?.code),
      );
    });
    assert.equal(code, Code.INVALID_ARGUMENT);
  });

  it("is NOT_OFFERED where there is no handler", async () => {
    const request = { sessionId: "s", requestId: "r" };
    const error = await failure(resource().nextTurn(request, { timeoutMs }));
    assert.equal(error.reason, "NOT_OFFERED");
    assert.equal(error.code, Code.UNIMPLEMENTED);
  });

  it("is UNIMPLEMENTED when its one answer is none, or several", async (context) => {
    const path = "/gymmesh.resource.v1.ResourceService/CallTool";
    const same = (one: Buffer): Buffer => one;
    const coded = {
      requestSerialize: same,
      requestDeserialize: same,
      responseSerialize: same,
      responseDeserialize: same,
    };
    const streams = new Server();
    const method = { path, requestStream: false, responseStream: true, ...coded };
    let count = 0;
    const handler = (call: ServerWritableStream<Buffer, Buffer>): void => {
      for (let one = 0; one < count; one++) call.write(Buffer.alloc(0));
      call.end();
    };
    streams.addService({ callTool: method }, { callTool: handler });
    const insecure = ServerCredentials.createInsecure();
    const bound = promisify(streams.bindAsync.bind(streams))("127.0.0.1:0", insecure);
    const other = await dial(`127.0.0.1:${await bound}`);
    context.after(() => {
      other.close();
      streams.forceShutdown();
    });
    const call = () => {
      const request = { sessionId: "s", requestId: "r", name: "t", arguments: new Uint8Array() };
      return serviceClient(ResourceService, other).callTool(request, { timeoutMs });
    };
    for (const [answers, said] of [
      [0, /No message/],
      [2, /Too many/],
    ] as const) {
      count = answers;
      const error = await failure(call());
      assert.equal(error.code, Code.UNIMPLEMENTED);
      assert.match(error.message, said);
    }
    count = 1;
    assert.equal((await call()).output.case, undefined);
  });

  it("is DEADLINE_PASSED when its time is over, and its handler hears of it", async () => {
    const before = left;
    const error = await failure(resource().listTools({}, { timeoutMs: 1_000 }));
    assert.equal(error.reason, "DEADLINE_PASSED");
    await until(() => left === before + 1, "the handler hears of it");
  });

  it("is CALLER_CANCELLED when its caller cancels", async () => {
    const signal = AbortSignal.timeout(20);
    const error = await failure(resource().listTools({}, { timeoutMs, signal }));
    assert.equal(error.reason, "CALLER_CANCELLED");
  });

  it("is PEER_UNAVAILABLE when nobody is there", async () => {
    const nobody = await dial("127.0.0.1:9");
    const calls = serviceClient(ResourceService, nobody);
    assert.equal((await failure(calls.listTools({}, { timeoutMs }))).reason, "PEER_UNAVAILABLE");
    nobody.close();
  });
});

describe("messages", () => {
  const call = { sessionId: "s", name: "n", requestId: "r" };

  it("may have tens of MiB", async () => {
    const bytes = new Uint8Array(40 * 1024 * 1024).fill(7);
    const resource = serviceClient(ResourceService, connection);
    const answer = await resource.callTool({ ...call, arguments: bytes }, { timeoutMs: 60_000 });
    assert.ok(answer.output.case === "text" && answer.output.value.length === bytes.length);
  });

  it("beyond the limit are MESSAGE_TOO_LARGE", async () => {
    const small = await dial(target, {
      channelOptions: { "grpc.max_receive_message_length": 1000 },
    });
    const resource = serviceClient(ResourceService, small);
    const request = { ...call, arguments: new Uint8Array(2000) };
    const error = await failure(resource.callTool(request, { timeoutMs }));
    assert.equal(error.reason, "MESSAGE_TOO_LARGE");
    assert.equal(error.retrySafe, false);
    small.close();
  });
});

describe("a status without ErrorInfo", () => {
  const cases: [Code, string, string][] = [
    [Code.UNAVAILABLE, "no", "PEER_UNAVAILABLE"],
    [Code.CANCELLED, "no", "PEER_UNAVAILABLE"],
    [Code.DEADLINE_EXCEEDED, "no", "DEADLINE_PASSED"],
    [Code.UNIMPLEMENTED, "no", "NOT_OFFERED"],
    [Code.UNAUTHENTICATED, "no", "CREDENTIAL_INVALID"],
    [Code.PERMISSION_DENIED, "no", "NOT_PERMITTED"],
    [Code.INVALID_ARGUMENT, "no", "FIELD_INVALID"],
    [Code.RESOURCE_EXHAUSTED, "Received message larger than max (5 vs. 4)", "MESSAGE_TOO_LARGE"],
    [Code.RESOURCE_EXHAUSTED, "too many streams", "QUEUE_FULL"],
    [Code.DATA_LOSS, "no", "INTERNAL_FAULT"],
  ];
  for (const [code, message, reason] of cases) {
    it(`${Code[code]} (${message}) is ${reason}`, () => {
      assert.equal(fromStatus(create(StatusSchema, { code, message })).reason, reason);
    });
  }

  it("of a reason of a later contract goes by its code", () => {
    const later = (code: Code) => fromStatus(toStatus(new MeshError("SHINY", "new", { code })));
    assert.equal(later(Code.UNAVAILABLE).retrySafe, true);
    assert.equal(later(Code.NOT_FOUND).retrySafe, false);
    assert.equal(later(Code.NOT_FOUND).reason, "SHINY");
    assert.equal(later(Code.NOT_FOUND).boundary, Boundary.UNSPECIFIED);
  });
});

describe("run control", () => {
  it("shows its token, pages and commands", async () => {
    const runs = await RunControl.dial(target, "t0ken");
    const ids: string[] = [];
    for await (const { runId } of runs.runs()) ids.push(runId);
    assert.deepEqual(ids, ["a", "b"]);
    assert.equal((await runs.control("a", { case: "pause", value: {} })).state, RunState.PAUSED);
    await runs.control("a", { case: "tune", value: { concurrency: 8 } });
    await runs.control("a", { case: "cancelGroup", value: { taskId: "t" } });
    assert.deepEqual(said.slice(-3), ["a pause", "a tune", "a cancelGroup"]);
    runs.close();
  });

  it("without its token is refused", async () => {
    const runs = await RunControl.dial(target, "another");
    const error = await failure(runs.runs().next());
    assert.equal(error.reason, "CREDENTIAL_INVALID");
    runs.close();
  });

  it("cancels a stream of groups that is left", async () => {
    const runs = await RunControl.dial(target, "t0ken");
    const before = left;
    for await (const { cursor } of runs.groups("a", { afterCursor: 4n, timeoutMs })) {
      assert.ok(cursor >= 5n);
      if (cursor === 7n) break;
    }
    await until(() => left === before + 10, "the server hears of it");
    runs.close();
  });
});

describe("registration", () => {
  it("registers again when the lease ran out, and gives it back", async () => {
    const instance = { id: "i", service: "s", name: "n", address: "a:1" };
    const registration = await register(connection, instance);
    await until(() => said.filter((one) => one === "register i").length === 2, "a second one");
    await registration.deregister();
    assert.equal(said.at(-1), "deregister lease-2");
  });
});

describe("the package", () => {
  it("can be required, with its generated messages", () => {
    const require = createRequire(import.meta.url);
    const cjs = require("@gymmesh/client") as typeof import("@gymmesh/client");
    assert.equal(cjs.writeJson(cjs.parseJson("[1,1.0]")), "[1,1.0]");
    const gen = require("@gymmesh/client/gen/gymmesh/agent/v1/agent_pb") as {
      AgentService: { typeName: string };
    };
    assert.equal(gen.AgentService.typeName, "gymmesh.agent.v1.AgentService");
  });
});
