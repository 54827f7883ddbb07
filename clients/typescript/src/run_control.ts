/** Steers a run while a collector has it under way: RunService, with the collector's token. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import { MeshError } from "./errors.js";
import {
  type ControlRunRequestSchema,
  type Run,
  RunService,
  type StreamGroupsResponse,
} from "./gen/gymmesh/run/v1/run_pb.js";
import { type ServiceClient, serviceClient } from "./rpc/client.js";
import { type Connection, type DialOptions, dial } from "./rpc/dial.js";

type Command = NonNullable<MessageInitShape<typeof ControlRunRequestSchema>["command"]>;

const TIMEOUT_MS = 10_000;

/** A collector's runs. Every method throws MeshError; each command is in force when it returns. */
export class RunControl {
  private readonly service: ServiceClient<typeof RunService>;

  /** `timeoutMs`: that one call may take. */
  constructor(
    private readonly connection: Connection,
    private readonly timeoutMs = TIMEOUT_MS,
  ) {
    this.service = serviceClient(RunService, connection);
  }

  /** Connects to a collector at an address, with its token. */
  static async dial(target: string, token: string, options: DialOptions = {}): Promise<RunControl> {
    return new RunControl(await dial(target, { ...options, token }));
  }

  /** All runs, newest first. */
  async *runs(): AsyncGenerator<Run, void> {
    let pageToken = "";
    do {
      const page = await this.service.listRuns({ pageToken }, { timeoutMs: this.timeoutMs });
      yield* page.runs;
      pageToken = page.nextPageToken;
    } while (pageToken);
  }

  async run(runId: string): Promise<Run> {
    const { run } = await this.service.getRun({ runId }, { timeoutMs: this.timeoutMs });
    return present(run);
  }

  /**
   * Gives a run a command, such as `{ case: "pause", value: {} }`, `resume`, `drain` (lets what is
   * in flight end), `cancel`, `tune` (`{ concurrency }`) or `cancelGroup` (`{ taskId }`).
   */
  async control(runId: string, command: Command): Promise<Run> {
    const options = { timeoutMs: this.timeoutMs };
    return present((await this.service.controlRun({ runId, command }, options)).run);
  }

  /**
   * Finished groups as they complete, until the run is finished. `afterCursor` acknowledges all up
   * to it; groups after it come again.
   */
  groups(
    runId: string,
    options: {
      readonly afterCursor?: bigint;
      readonly timeoutMs: number;
      readonly signal?: AbortSignal;
    },
  ): AsyncIterable<StreamGroupsResponse> {
    const { afterCursor = 0n, timeoutMs, signal } = options;
    return this.service.streamGroups({ runId, afterCursor }, { timeoutMs, signal });
  }

  close(): void {
    this.connection.close();
  }
}

function present(run: Run | undefined): Run {
  if (run) return run;
  const metadata = { rule: "decode", expected: "a run", got: "none" };
  throw new MeshError("CONTRACT_VIOLATED", "the collector answered without a run", { metadata });
}
