/** Collecting from an agent: outcomes, attempts, and connections that break. */
import assert from "node:assert/strict";
import { afterEach, describe, it } from "node:test";
import {
  type Agent,
  type CollectOptions,
  connectAgent,
  fromStatus,
  MeshError,
  type Outcome,
  STREAM_LIMITS,
  type Task,
  taskFromRow,
} from "@gymmesh/client";
import { Boundary, VerificationStatus } from "@gymmesh/client/gen/gymmesh/rollout/v1/rollout_pb";
import {
  CALL,
  CutProxy,
  completed,
  type Event,
  FakeAgent,
  failed,
  gate,
  type Script,
  STARTED,
  until,
  VERIFIED,
  WHOLE,
} from "./fake_agent.js";

const cleanups: (() => void)[] = [];
afterEach(() => {
  for (const cleanup of cleanups.splice(0).reverse()) cleanup();
});

async function served(script: Script, collect = true, instanceId = "fake-0"): Promise<FakeAgent> {
  const agent = new FakeAgent(script, { collect, instanceId });
  await agent.start();
  cleanups.push(() => agent.stop());
  return agent;
}

async function behind(agent: FakeAgent): Promise<[CutProxy, string]> {
  const proxy = new CutProxy(agent.port);
  const target = await proxy.start();
  cleanups.push(() => proxy.stop());
  return [proxy, target];
}

async function connected(target: string): Promise<Agent> {
  const agent = await connectAgent(target);
  cleanups.push(() => agent.close());
  return agent;
}

function tasks(count: number, row: object = {}): Task[] {
  return Array.from({ length: count }, (_, at) =>
    taskFromRow(
      JSON.stringify({ task_id: `t${at}`, responses_create_params: { input: "2+3?" }, ...row }),
      { environment: "env", agent: "fake" },
    ),
  );
}

async function all(agent: Agent, given: Task[], options: CollectOptions = {}): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  for await (const outcome of agent.collect(given, { patienceMs: 60_000, ...options })) {
    outcomes.push(outcome);
  }
  return outcomes;
}

function rewards(outcomes: readonly Outcome[]): (number | undefined)[] {
  return outcomes.map((one) =>
    one.kind === "completed" ? one.rollout.verified?.verification?.reward : undefined,
  );
}

describe("collect", () => {
  for (const collect of [true, false]) {
    it(`gives every repeat one outcome (Collect offered: ${collect})`, async () => {
      const fake = await served(() => WHOLE, collect);
      const agent = await connected(`127.0.0.1:${fake.port}`);
      const outcomes = await all(agent, tasks(7), { repeats: 3, concurrency: 5, runId: "r" });
      assert.deepEqual(rewards(outcomes), Array(21).fill(1));
      const names = outcomes.map(({ task, repeatIndex }) => `${task.taskId}/${repeatIndex}`);
      assert.equal(new Set(names).size, 21);
      assert.equal(fake.said.filter((one) => one.startsWith("start")).length, 21);
      assert.ok(outcomes.every((one) => one.agentInstanceId === "fake-0" && one.attempt === 1));
      assert.equal(outcomes[0]?.row().reward, 1);
    });
  }

  it("sends each repeat a seed of its own, and leaves the task as it is", async () => {
    const seeds: (bigint | undefined)[] = [];
    const fake = await served(({ task }) => {
      seeds.push(task?.seed);
      return WHOLE;
    });
    const given = tasks(1, { seed: 7 });
    const agent = await connected(`127.0.0.1:${fake.port}`);
    await all(agent, given, { repeats: 2, concurrency: 1 });
    assert.deepEqual(seeds, [7n, 1_000_010n]);
    assert.equal(given[0]?.seed, 7n);
  });

  it("tries a failure that is safe to retry again, by another attempt's number", async () => {
    const script: Script = ({ attempt }) => (attempt === 1 ? [STARTED(), failed(2n, true)] : WHOLE);
    const fake = await served(script);
    const agent = await connected(`127.0.0.1:${fake.port}`);
    const [outcome] = await all(agent, tasks(1));
    assert.equal(outcome?.kind, "completed");
    assert.equal(outcome?.attempt, 2);
  });

  it("does not try one that is not safe, and no more often than it may", async () => {
    for (const [safe, most, attempts] of [
      [false, 3, 1],
      [true, 2, 2],
    ] as const) {
      const fake = await served(() => [STARTED(), failed(2n, safe)]);
      const agent = await connected(`127.0.0.1:${fake.port}`);
      const [outcome] = await all(agent, tasks(1), { maxAttempts: most });
      assert.ok(outcome?.kind === "failed");
      assert.equal(outcome.attempt, attempts);
      assert.equal(outcome.failure.boundary, Boundary.MODEL);
      assert.ok(outcome.row().reward === undefined, "a failure has no reward");
    }
  });

  it("waits where an agent has no room, without counting that as an attempt", async () => {
    let refusals = 2;
    const fake = await served(() => {
      if (refusals-- > 0) throw new MeshError("QUEUE_FULL", "full", { retryAfterMs: 10 });
      return WHOLE;
    });
    const agent = await connected(`127.0.0.1:${fake.port}`);
    const [outcome] = await all(agent, tasks(1), { maxAttempts: 1, patienceMs: 60_000 });
    assert.deepEqual([outcome?.kind, outcome?.attempt], ["completed", 1]);
  });

  it("takes a stream that breaks the law for a failure of the agent, never for data", async () => {
    const cases: [string, Event[]][] = [
      ["unverified", [STARTED(), CALL, completed(3n)]],
      ["terminal", [STARTED(), CALL, VERIFIED, completed(9n)]],
      ["started", [CALL, VERIFIED, completed(3n)]],
    ];
    for (const [rule, events] of cases) {
      const fake = await served(() => events);
      const agent = await connected(`127.0.0.1:${fake.port}`);
      const [outcome] = await all(agent, tasks(1));
      assert.ok(outcome?.kind === "failed", rule);
      assert.equal(outcome.failure.boundary, Boundary.AGENT);
      assert.match(outcome.failure.status?.message ?? "", new RegExp(rule));
      assert.equal(outcome.attempt, 1);
    }
  });

  it("takes a plain stream without a terminal event for no data, and tries again", async () => {
    const script: Script = ({ attempt }) => (attempt === 1 ? [STARTED(), CALL] : WHOLE);
    const fake = await served(script, false);
    const agent = await connected(`127.0.0.1:${fake.port}`);
    const [outcome] = await all(agent, tasks(1));
    assert.deepEqual([outcome?.kind, outcome?.attempt], ["completed", 2]);
  });

  it("acknowledges an outcome only once the next one is asked for", async () => {
    const fake = await served(() => WHOLE);
    const agent = await connected(`127.0.0.1:${fake.port}`);
    const outcomes = agent.collect(tasks(2), { concurrency: 1 });
    await outcomes.next();
    await new Promise((resolve) => setTimeout(resolve, 300));
    assert.ok(!fake.said.includes("ack 4"), "event 4 has the first outcome");
    await outcomes.next();
    const acked = (): boolean => fake.said.some((one) => /^ack ([4-9])$/.test(one));
    await until(acked, "an acknowledgement");
    await outcomes.return();
  });

  it("acknowledges the outcomes of a tenth of a second at once", async () => {
    const fake = await served(() => WHOLE);
    const agent = await connected(`127.0.0.1:${fake.port}`);
    const began = performance.now();
    await all(agent, tasks(100));
    const most = 2 + (performance.now() - began) / 90;
    await until(() => fake.said.includes("ack 400"), "the acknowledgement of all events");
    const acks = fake.said.filter((one) => one.startsWith("ack"));
    assert.ok(acks.length <= most, `${acks.length} acknowledgements, ${most} are enough`);
  });

  it("grants credit as events come", async () => {
    const fake = await served(() => WHOLE);
    const agent = await connected(`127.0.0.1:${fake.port}`);
    await all(agent, tasks(4), { streamLimits: { ...STREAM_LIMITS, credit: 4n } });
    assert.ok(fake.said.filter((one) => one === "credit").length >= 4);
  });

  it("cancels what is in flight when the caller leaves", async () => {
    const never = gate();
    cleanups.push(() => never.open());
    const script: Script = async function* ({ task }) {
      yield STARTED();
      if (task?.taskId !== "t0") await never.opened;
      yield* WHOLE.slice(1);
    };
    const fake = await served(script);
    const agent = await connected(`127.0.0.1:${fake.port}`);
    for await (const outcome of agent.collect(tasks(3), { concurrency: 3 })) {
      assert.equal(outcome.task.taskId, "t0");
      break;
    }
    await until(() => fake.said.filter((one) => one.startsWith("cancel")).length === 2, "cancels");
  });

  it("ends an attempt that its agent does not end in time, at the boundary DEADLINE", async () => {
    const never = gate();
    cleanups.push(() => never.open());
    const fake = await served(async function* () {
      yield STARTED();
      await never.opened;
    });
    const agent = await connected(`127.0.0.1:${fake.port}`);
    const [outcome] = await all(agent, tasks(1), { timeoutMs: 200 });
    assert.ok(outcome?.kind === "failed");
    assert.equal(outcome.failure.boundary, Boundary.DEADLINE);
    assert.equal(outcome.failure.retrySafe, false);
  });

  it("refuses numbers with which nothing would be collected", async () => {
    const fake = await served(() => WHOLE);
    const agent = await connected(`127.0.0.1:${fake.port}`);
    for (const wrong of [
      { concurrency: 0 },
      { concurrency: Number.NaN },
      { repeats: 0 },
      { repeats: 1.5 },
      { maxAttempts: 0 },
      { timeoutMs: Number.POSITIVE_INFINITY },
      { timeoutMs: 0 },
      { patienceMs: Number.NaN },
    ]) {
      await assert.rejects(all(agent, tasks(1), wrong), RangeError, JSON.stringify(wrong));
    }
    const longest = { timeoutMs: 365 * 86_400_000 };
    assert.deepEqual(rewards(await all(agent, tasks(1), longest)), [1]);
  });

  it("fails a task alone that is larger than a message may be", async () => {
    const fake = await served(() => WHOLE);
    const agent = await connected(`127.0.0.1:${fake.port}`);
    const given = tasks(3);
    for (const task of given.slice(1, 2)) task.payloadJson = new Uint8Array(64 * 1024 * 1024);
    const outcomes = await all(agent, given);
    const kinds = new Map(outcomes.map((one) => [one.task.taskId, one.kind]));
    assert.deepEqual(
      [kinds.get("t0"), kinds.get("t1"), kinds.get("t2")],
      ["completed", "failed", "completed"],
    );
    const large = outcomes.find((one) => one.kind === "failed");
    assert.ok(large?.kind === "failed" && large.failure.status && !large.failure.retrySafe);
    assert.equal(fromStatus(large.failure.status).reason, "MESSAGE_TOO_LARGE");
    assert.equal(fake.said.filter((one) => one.startsWith("hello")).length, 1);
  });

  it("goes on past a failure whose details are no messages", async () => {
    const type = "type.googleapis.com/google.rpc";
    const value = Uint8Array.of(0xff);
    const details = ["ErrorInfo", "RetryInfo"].map((name) => ({
      typeUrl: `${type}.${name}`,
      value,
    }));
    const failure = {
      boundary: Boundary.MODEL,
      retrySafe: true,
      status: { code: 14, message: "no model", details },
    };
    const broken: Event = { case: "failed", value: { failure, events: 2n } };
    const fake = await served(({ attempt }) => (attempt === 1 ? [STARTED(), broken] : WHOLE));
    const agent = await connected(`127.0.0.1:${fake.port}`);
    assert.deepEqual(rewards(await all(agent, tasks(1))), [1]);
    const [outcome] = await all(agent, tasks(1), { maxAttempts: 1, runId: "another" });
    assert.equal(outcome?.kind, "failed");
    assert.ok(outcome?.row().failure, "it has a row");
  });

  it("has a failure for what cannot be written as a row", async () => {
    const verdict: Event = {
      case: "verified",
      value: {
        verification: {
          status: VerificationStatus.VERIFIED,
          reward: 1,
          evidenceJson: new TextEncoder().encode("NaN"),
        },
      },
    };
    const fake = await served(() => [STARTED(), CALL, verdict, completed(4n)]);
    const agent = await connected(`127.0.0.1:${fake.port}`);
    const [outcome] = await all(agent, tasks(1));
    assert.ok(outcome?.kind === "completed");
    let failed: Outcome = outcome;
    try {
      outcome.row();
    } catch (error) {
      failed = outcome.unwritable(error);
    }
    assert.ok(failed.kind === "failed" && failed.failure.status);
    assert.equal(fromStatus(failed.failure.status).reason, "CONTRACT_VIOLATED");
    const row = failed.row();
    assert.ok(row.reward === undefined && row.taskId === "t0" && row.attempt === 1);
  });

  it("goes to another agent while one is going down", async () => {
    const draining = await served(() => {
      throw new MeshError("DRAINING", "going down");
    });
    const other = await served(() => WHOLE, true, "fake-1");
    const both = `ipv4:127.0.0.1:${draining.port},127.0.0.1:${other.port}`;
    const balanced = JSON.stringify({ loadBalancingConfig: [{ round_robin: {} }] });
    const agent = await connectAgent(both, {
      channelOptions: { "grpc.service_config": balanced },
    });
    cleanups.push(() => agent.close());
    const outcomes = await all(agent, tasks(20), {
      streams: 2,
      concurrency: 4,
      patienceMs: 10_000,
      streamLimits: { ...STREAM_LIMITS, backoffMs: 10 },
    });
    assert.deepEqual(rewards(outcomes), Array(20).fill(1));
  });

  it("says what failed when there is no agent", async () => {
    await assert.rejects(connectAgent("127.0.0.1:9"), {
      name: "MeshError",
      reason: "PEER_UNAVAILABLE",
    });
  });
});

describe("a connection that breaks", () => {
  it("is made anew, and no attempt notices", async () => {
    const go = gate();
    const script: Script = async function* () {
      yield STARTED();
      await go.opened;
      yield* WHOLE.slice(1);
    };
    const fake = await served(script);
    const [proxy, target] = await behind(fake);
    const agent = await connected(target);
    const begun = new Set<string>();
    const running = all(agent, tasks(5), { onEvent: (event) => begun.add(event.rolloutId) });
    await until(() => begun.size === 5, "starts");
    proxy.cut();
    await until(() => fake.said.includes("hello 5"), "a hello that goes on after event 5");
    go.open();
    const outcomes = await running;
    assert.deepEqual(rewards(outcomes), Array(5).fill(1));
    assert.ok(outcomes.every((one) => one.attempt === 1));
    assert.equal(fake.said.filter((one) => one.startsWith("start")).length, 5);
    assert.ok(proxy.count > 1);
  });

  it("brings the events that the cut lost", async () => {
    const [one, go] = [gate(), gate()];
    const fake = await served(async function* () {
      yield STARTED();
      one.open();
      await go.opened;
      yield* WHOLE.slice(1);
    });
    const [proxy, target] = await behind(fake);
    const agent = await connected(target);
    const running = all(agent, tasks(1));
    await one.opened;
    proxy.closed = true;
    proxy.cut();
    go.open(); // the other events come while nobody is connected
    await until(() => [...fake.streams.values()].some((kept) => kept.cursor === 4n), "events");
    proxy.closed = false;
    const [outcome] = await running;
    assert.deepEqual([outcome?.kind, outcome?.attempt], ["completed", 1]);
  });

  it("starts new attempts when the agent has lost the stream", async () => {
    const script: Script = async function* ({ attempt }) {
      yield STARTED();
      if (attempt === 1) await new Promise(() => undefined);
      yield* WHOLE.slice(1);
    };
    const [first, second] = [await served(script), await served(script)];
    const [proxy, target] = await behind(first);
    const agent = await connected(target);
    const begun = new Set<string>();
    const running = all(agent, tasks(3), { onEvent: (event) => begun.add(event.rolloutId) });
    await until(() => begun.size === 3, "starts");
    proxy.port = second.port; // as if it was started again: it knows nothing
    proxy.cut();
    const outcomes = await running;
    assert.deepEqual(
      outcomes.map((one) => [one.kind, one.attempt]),
      Array(3).fill(["completed", 2]),
    );
  });

  it("starts new attempts where another instance answers, whatever that says", async () => {
    // Nothing has come, so the second takes the stream for a new one, which it says it resumes.
    const first = await served(async function* () {
      await new Promise(() => undefined);
      yield STARTED();
    });
    const second = await served(() => WHOLE, true, "fake-1");
    const [proxy, target] = await behind(first);
    const agent = await connected(target);
    const running = all(agent, tasks(2));
    await until(() => first.said.filter((one) => one.startsWith("start")).length === 2, "starts");
    proxy.port = second.port;
    proxy.cut();
    const outcomes = await running;
    assert.deepEqual(
      outcomes.map((one) => [one.kind, one.attempt]),
      Array(2).fill(["completed", 2]),
    );
    const starts = second.said.filter((one) => one.startsWith("start"));
    assert.ok(starts.length === 2 && starts.every((one) => one.endsWith("#2")), `${starts}`);
  });

  it("gives what an agent that went down had taken another number", async () => {
    const fake = await served(async function* ({ attempt }) {
      if (attempt === 1) await new Promise(() => undefined);
      yield* WHOLE;
    });
    const agent = await connected(`127.0.0.1:${fake.port}`);
    const running = all(agent, tasks(1));
    await until(() => fake.said.some((one) => one.startsWith("start")), "a start");
    fake.drain();
    const [outcome] = await running;
    assert.deepEqual([outcome?.kind, outcome?.attempt], ["completed", 2]);
  });

  it("ends all in failures when the connection was closed from here", async () => {
    const fake = await served(async function* () {
      yield STARTED();
      await new Promise(() => undefined);
    });
    const agent = await connected(`127.0.0.1:${fake.port}`);
    const begun = gate();
    const limits = { ...STREAM_LIMITS, reconnectMs: 200 };
    const options = { streamLimits: limits, patienceMs: 200, onEvent: () => begun.open() };
    const running = all(agent, tasks(1), options);
    await begun.opened;
    agent.close();
    fake.stop();
    const [outcome] = await running;
    assert.ok(outcome?.kind === "failed");
    assert.equal(outcome.failure.boundary, Boundary.AGENT);
  });

  it("ends in a failure that is safe to retry when the agent stays away", async () => {
    const fake = await served(async function* () {
      yield STARTED();
      await new Promise(() => undefined);
    });
    const [proxy, target] = await behind(fake);
    const agent = await connected(target);
    const begun = gate();
    const limits = { ...STREAM_LIMITS, reconnectMs: 300 };
    const options = { maxAttempts: 1, streamLimits: limits, onEvent: () => begun.open() };
    const running = all(agent, tasks(1), options);
    await begun.opened;
    proxy.stop();
    const [outcome] = await running;
    assert.ok(outcome?.kind === "failed");
    assert.equal(outcome.failure.boundary, Boundary.AGENT);
    assert.equal(outcome.failure.retrySafe, true);
    assert.equal(outcome.partial.started?.agent, "fake", "what was known of it is kept");
  });

  it("is given up when nothing comes on it", async () => {
    const go = gate();
    const fake = await served(async function* () {
      yield STARTED();
      await go.opened;
      yield* WHOLE.slice(1);
    });
    const agent = await connected(`127.0.0.1:${fake.port}`);
    const running = all(agent, tasks(1), { streamLimits: { ...STREAM_LIMITS, silenceMs: 100 } });
    await until(
      () => fake.said.filter((one) => one === "hello 1").length >= 1,
      "another connection",
    );
    go.open();
    const [outcome] = await running;
    assert.deepEqual([outcome?.kind, outcome?.attempt], ["completed", 1]);
  });
});
