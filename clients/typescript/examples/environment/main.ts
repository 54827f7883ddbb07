/**
 * An environment in TypeScript: a resource service with its verifier, and health, at one address.
 *
 *   environment [--listen 127.0.0.1:0] [--registry HOST:PORT] [--session-limit N]
 *
 * With --registry it registers itself, so that agents find it by its name, `ts_shop`.
 */
import { randomBytes, randomInt } from "node:crypto";
import { parseArgs } from "node:util";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { toBinary } from "@bufbuild/protobuf";
import { ServerCredentials } from "@grpc/grpc-js";
import {
  addService,
  CONTRACT_VERSION,
  dial,
  MeshError,
  newServer,
  type Registration,
  register,
  type ServiceHandlers,
} from "@gymmesh/client";
import { Health } from "@gymmesh/client/gen/gymmesh/discovery/v1/discovery_pb";
import {
  CallToolRequestSchema,
  type CallToolResponseSchema,
  CreateSessionRequestSchema,
  type CreateSessionResponseSchema,
  ResourceService,
  RewardRule,
} from "@gymmesh/client/gen/gymmesh/resource/v1/resource_pb";
import { VerifyService } from "@gymmesh/client/gen/gymmesh/verify/v1/verify_pb";
import { HealthImplementation } from "grpc-health-check";
import { Calls, Session } from "./sessions.js";
import {
  type Basket,
  callTool,
  EXAMPLES,
  judge,
  NAME,
  type Order,
  orderOf,
  TOOLS,
  VERSION,
} from "./shop.js";

const IDLE_S = 600;
const PAGE = 100;
const DRAIN_MS = 5_000;
const SERVING_NAMES = ["", ResourceService.typeName, VerifyService.typeName];

type Answer = MessageInitShape<typeof CallToolResponseSchema>;
type Opened = MessageInitShape<typeof CreateSessionResponseSchema>;
type ShopSession = Session<{ readonly order: Order; readonly basket: Basket }, Answer>;

class Shop {
  readonly instanceId = `${NAME}-${randomBytes(4).toString("hex")}`;
  private readonly sessions = new Map<string, ShopSession>();
  /** CreateSession's ids count for as long as their session is there. */
  private readonly opened = new Calls<Opened>(() => true);
  private draining = false;

  constructor(private readonly limit: number) {}

  readonly resource: ServiceHandlers<typeof ResourceService> = {
    getEnvironment: () => ({
      name: NAME,
      version: VERSION,
      description: "Fill a basket as the task asks, and say what it costs.",
      verifyNeedsSession: true,
      retrySafe: true,
      rewardRule: RewardRule.VERIFIER_ONLY,
      sessionIdleS: IDLE_S,
      sessionLimit: this.limit,
      instanceId: this.instanceId,
      contractVersion: CONTRACT_VERSION,
    }),
    listTasks: (request) => {
      const [tasks, nextPageToken] = page(EXAMPLES, request);
      return { tasks, nextPageToken };
    },
    listTools: (request) => {
      const [tools, nextPageToken] = page(TOOLS, request);
      return { tools, nextPageToken };
    },
    createSession: (request) => {
      const bytes = toBinary(CreateSessionRequestSchema, request);
      return this.opened.once(request.requestId, bytes, async () => {
        if (this.draining) throw new MeshError("DRAINING", "the shop closes");
        if (!request.task) throw new TypeError("REQUIRED fields are checked before");
        const order = orderOf(request.task);
        const limit = `${this.limit}`;
        if (this.limit && this.sessions.size >= this.limit) {
          throw new MeshError("SESSION_LIMIT", `the shop has room for ${limit}`, {
            metadata: { limit },
          });
        }
        const state = { order, basket: new Map() };
        const session: ShopSession = new Session(state, IDLE_S * 1000, () => {
          this.sessions.delete(session.id);
          this.opened.forget(request.requestId);
        });
        this.sessions.set(session.id, session);
        return {
          sessionId: session.id,
          instanceId: this.instanceId,
          tools: [...TOOLS],
          seed: request.seed ?? request.task.seed ?? BigInt(randomInt(2 ** 31)),
          environmentVersion: VERSION,
        };
      });
    },
    callTool: async (request) => {
      const session = this.session(request.sessionId);
      const { requestId, name } = request;
      if (session.done && !session.calls.has(requestId)) {
        const metadata = { session_id: session.id, state: "done" };
        throw new MeshError("SESSION_STATE", "the customer has left the shop", { metadata });
      }
      return session.calls.once(requestId, toBinary(CallToolRequestSchema, request), () =>
        session.run(
          async () => {
            const { basket } = session.state;
            const { signal } = session.closed;
            const answer = await callTool(basket, name, request.arguments, signal);
            if (answer.done) session.done = true;
            return answer;
          },
          () => this.gone(session.id),
        ),
      );
    },
    closeSession: ({ sessionId }) => {
      this.sessions.get(sessionId)?.end();
      return {};
    },
  };

  readonly verify: ServiceHandlers<typeof VerifyService> = {
    verify: async ({ task, sessionId, transcript }) => {
      if (!task) throw new TypeError("REQUIRED fields are checked before");
      const order = orderOf(task);
      const session = this.session(sessionId);
      const { basket } = session.state;
      const gone = (): MeshError => this.gone(sessionId);
      return session.run(async () => ({ verification: judge(order, basket, transcript) }), gone);
    },
  };

  /** Opens no more sessions. */
  drain(): void {
    this.draining = true;
  }

  private session(sessionId: string): ShopSession {
    const session = this.sessions.get(sessionId);
    if (!session) throw this.gone(sessionId);
    return session;
  }

  private gone(sessionId: string): MeshError {
    const metadata = { session_id: sessionId, instance_id: this.instanceId };
    return new MeshError("SESSION_NOT_FOUND", "there is no such session", { metadata });
  }
}

/** A page of elements and the token of the next; throws FIELD_INVALID. */
function page<T>(
  elements: readonly T[],
  { pageSize, pageToken }: { readonly pageSize: number; readonly pageToken: string },
): [T[], string] {
  const start = pageToken === "" ? 0 : Number(pageToken);
  const invalid = (field: string): MeshError =>
    new MeshError("FIELD_INVALID", `'${field}' is none of ours`, { metadata: { field } });
  if (pageSize < 0) throw invalid("page_size");
  if (!/^\d*$/.test(pageToken) || start > elements.length) throw invalid("page_token");
  const end = start + (pageSize || PAGE);
  return [elements.slice(start, end), end < elements.length ? `${end}` : ""];
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      listen: { type: "string", default: "127.0.0.1:0" },
      registry: { type: "string" },
      "session-limit": { type: "string", default: "0" },
    },
  });
  const shop = new Shop(Number(values["session-limit"]));
  const server = newServer();
  addService(server, ResourceService, shop.resource);
  addService(server, VerifyService, shop.verify);
  const health = new HealthImplementation(
    Object.fromEntries(SERVING_NAMES.map((name) => [name, "NOT_SERVING"])),
  );
  health.addToServer(server);
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync(values.listen, ServerCredentials.createInsecure(), (error, bound) => {
      if (error) reject(error);
      else resolve(bound);
    });
  });
  for (const name of SERVING_NAMES) health.setStatus(name, "SERVING");
  const address = values.listen.replace(/:\d+$/, `:${port}`);
  let registration: Registration | undefined;
  const registry = values.registry === undefined ? undefined : await dial(values.registry);
  if (registry) {
    const about = { id: shop.instanceId, service: ResourceService.typeName, name: NAME, address };
    registration = await register(registry, {
      ...about,
      contractVersion: CONTRACT_VERSION,
      health: Health.SERVING,
    });
  }
  console.log(address);

  const stop = async (): Promise<void> => {
    shop.drain();
    for (const name of SERVING_NAMES) health.setStatus(name, "NOT_SERVING");
    await registration?.deregister().catch(() => undefined);
    registry?.close();
    const late = setTimeout(() => server.forceShutdown(), DRAIN_MS);
    server.tryShutdown(() => clearTimeout(late));
  };
  process.once("SIGTERM", stop);
  process.once("SIGINT", stop);
}

await main();
