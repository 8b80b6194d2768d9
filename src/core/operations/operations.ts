import type { OperatorStore } from "../../ports/operatorStore.ts";
import type { Log, SecretMasker } from "../../ports/runtime.ts";
import { systemClock } from "../../time/clock.ts";
import { sleep } from "../../time/wait.ts";
import { compileDestinationOf, compileRouting } from "../delivery/routing.ts";
import { DestinationControl } from "../destinations/control.ts";
import { parseJsonPath } from "../receipt/jsonPath.ts";
import type { SourceOptions } from "../receipt/receive.ts";
import { operatorView } from "../redaction/hidePayload.ts";
import type { Redact } from "../redaction/redact.ts";
import { createAudit } from "./audit.ts";
import { InboxReplay } from "./inboxReplay.ts";
import { MessageActions } from "./messageActions.ts";
import { Overview } from "./overview.ts";
import { Parked } from "./parked.ts";
import { Replay } from "./replay.ts";
import type { OperationsSettings } from "./shown.ts";
import { Trace } from "./trace.ts";

interface OperationsOptions {
  readonly config: Pick<OperationsSettings, "destinations" | "sources"> & {
    readonly routes: Parameters<typeof compileRouting>[0];
    readonly inbox: { readonly relay: { readonly enabled: boolean } };
    readonly tracing: { readonly urlTemplate?: string | undefined };
    readonly admin: { readonly redactPayloadPaths: readonly string[] };
  };
  readonly store: OperatorStore;
  readonly secrets: Pick<SecretMasker, "mask">;
  readonly redact: Redact;
  readonly log: Log;
  /** Of the inbox rows that may be replayed; called by the first replay of the inbox. */
  readonly sources: () => readonly SourceOptions[];
  /** Wakes the poller of this process. */
  readonly wakePoller?: () => void;
}

export type Operations = ReturnType<typeof createOperations>;

/**
 * What operators do, over HTTP and by the commands. The routes of the configuration decide about the destination of a
 * row. Rows that are due and keys that are free are announced to the pollers of all processes.
 */
export function createOperations({ config, store, secrets, redact, log, sources, wakePoller }: OperationsOptions) {
  const { routes, destinations, admin, inbox, tracing } = config;
  const audit = createAudit({ store: store.operations, redact, log });
  const hiddenPaths = admin.redactPayloadPaths.map(parseJsonPath);
  const routing = compileRouting(routes);
  const destinationOf = compileDestinationOf(routing, new Set(Object.keys(destinations)));
  const shown = {
    destinations,
    sources: config.sources,
    isRelayEnabled: inbox.relay.enabled,
    traceUrlTemplate: tracing.urlTemplate,
  };
  const listOf = (topic: string) => routing.listOf?.(topic);
  const settings = { destinationOf, listOf, ...shown };
  const onFreed = (): void => {
    wakePoller?.();
    store.announceOutbox();
  };
  const tools = { destinationOf, redact, audit, log, wait: sleep };
  const replay = new Replay({
    ...tools,
    listOf,
    store: store.replay,
    inbox: new InboxReplay({ messages: store.messages, store: store.replay, sources, redact }),
    onMoved: onFreed,
  });
  return {
    replay,
    parked: new Parked({ ...tools, store: store.parked, replay: store.replay, cells: store.cells, onFreed }),
    messages: new MessageActions({ store, replay, onFreed, audit, redact }),
    trace: new Trace({ store, settings, hiddenPaths, secrets, clock: systemClock }),
    overview: new Overview({ store, settings, clock: systemClock }),
    destinations: new DestinationControl({ destinations, store, audit, log }),
    audit,
    /** The last step of what operators are shown. */
    show: operatorView(secrets, hiddenPaths),
  };
}
