/** Registers an instance of a service with the mesh's registry, and keeps its lease. */
import { setTimeout as sleep } from "node:timers/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { MeshError } from "./errors.js";
import {
  DiscoveryService,
  Health,
  type InstanceSchema,
} from "./gen/gymmesh/discovery/v1/discovery_pb.js";
import { serviceClient } from "./rpc/client.js";
import type { Connection } from "./rpc/dial.js";

const TIMEOUT_MS = 5_000;
const RETRY_MS = 1_000;
const SHORTEST_MS = 100;

/** A registered instance. */
export interface Registration {
  /** Ends the lease: the instance is no longer listed. */
  deregister(): Promise<void>;
}

/**
 * Registers an instance, and keeps it registered: the lease is renewed at a third of it, and an
 * instance whose lease ran out, or whose registry was restarted, registers again.
 *
 * @throws MeshError when the first registration fails.
 */
export async function register(
  registry: Connection,
  instance: MessageInitShape<typeof InstanceSchema>,
): Promise<Registration> {
  const service = serviceClient(DiscoveryService, registry);
  const options = { timeoutMs: TIMEOUT_MS };
  const stop = new AbortController();
  let lease = await service.register({ instance }, options);
  const keep = async (): Promise<void> => {
    let waitMs = third(lease.leaseS);
    while (!stop.signal.aborted) {
      await sleep(waitMs, undefined, { signal: stop.signal, ref: false }).catch(() => undefined);
      if (stop.signal.aborted) return;
      try {
        const health = instance.health ?? Health.UNSPECIFIED;
        const { leaseS } = await service.renew({ leaseId: lease.leaseId, health }, options);
        waitMs = third(leaseS);
      } catch (error) {
        waitMs = RETRY_MS;
        if (!(error instanceof MeshError && error.reason === "LEASE_NOT_FOUND")) continue;
        lease = await service.register({ instance }, options).catch(() => lease);
      }
    }
  };
  const keeping = keep();
  return {
    async deregister() {
      stop.abort();
      await keeping;
      await service.deregister({ leaseId: lease.leaseId }, options);
    },
  };
}

/** When to renew a lease of so many seconds; one of none is not asked for without a pause. */
function third(leaseS: number): number {
  return Math.max((leaseS * 1000) / 3, SHORTEST_MS);
}
