import { parsePauseDuration } from "../../core/destinations/control.ts";
import type { ActionResult } from "../../core/finished/messageActions.ts";
import type { JobRun, ReplayJobs } from "../../core/finished/replayJobs.ts";
import {
  type Fields,
  hasFilter,
  isUuid,
  MOST_PER_SECOND,
  NO_FILTER,
  parseCaller,
  parseFlag,
  parseParkedChange,
  parseReason,
  parseReplayRequest,
  parseText,
  type ReplayRequest,
  requireObject,
  single,
} from "../../core/finished/requests.ts";
import { splitSequence } from "../../model/cellPositions.ts";
import { errorText } from "../../model/errors.ts";
import type { MessageId } from "../../model/rows.ts";
import type { Log } from "../../ports/runtime.ts";
import { ERRORS } from "../exchange.ts";
import type { HeavyReads } from "./heavyReads.ts";
import { type AdminRequest, onTable, parseJsonBody, parseOptionalBody, Refusal } from "./requests.ts";

/** What operators change over HTTP: the bodies of their requests, replays that are jobs, and single messages. */

/** Runs a change to its end, whether or not its caller still waits for it; the signal ends it when the service stops. */
export type RunChange = <T>(change: (signal: AbortSignal) => Promise<T>) => Promise<T>;

/** What a request is about, and who makes it. Body `{"by": "alice"}`, or none. */
export function parseTarget({ body, parameters }: AdminRequest) {
  return { ...targetOf({ parameters }), by: parseCaller(parseOptionalBody(body)) };
}

/** @returns `id`: undefined for a text that is not an id */
export function targetOf({ parameters: { id = "", name = "" } }: Pick<AdminRequest, "parameters">) {
  return { id: isUuid(id) ? (id.toLowerCase() as MessageId) : undefined, name };
}

/** Body `{"reason": "...", "for": "2h", "by": "alice"}`; without `for` until it is resumed. */
export function parsePause({ body, parameters }: AdminRequest) {
  const fields = requireObject(parseJsonBody(body));
  const pause = { reason: requiredReason(fields), forMs: single(fields, "for", parsePauseDuration) };
  return { ...targetOf({ parameters }), pause, by: parseCaller(fields) };
}

/** Body `{"reason": "...", "by": "alice"}`. */
export function parseDiscard({ body, parameters }: AdminRequest) {
  const fields = requireObject(parseJsonBody(body));
  const reason = requiredReason(fields);
  return { ...targetOf({ parameters }), by: parseCaller(fields), reason };
}

function requiredReason(fields: Fields): string {
  const reason = single(fields, "reason", parseReason);
  if (reason === undefined) throw new Error('"reason" is missing; a text that says why is expected');
  return reason;
}

/** Body: the filter, `reason` with a discard, `by`. */
export const parseParked =
  (asksReason: boolean) =>
  ({ body }: AdminRequest) =>
    parseParkedChange(parseOptionalBody(body), asksReason);

/** Body: the filter of a replay, and `toDestination`, `by`. */
export const parseReplay =
  (destinations: readonly string[]) =>
  ({ body }: AdminRequest) => {
    const fields = parseOptionalBody(body);
    const request = parseReplayRequest(fields);
    const by = parseCaller(fields);
    requireDestinations(request, destinations);
    return { request, by };
  };

/** The same, and `dryRun`, `perSecond`. */
export const parseJob =
  (destinations: readonly string[]) =>
  ({ body }: AdminRequest) => {
    const fields = requireObject(parseJsonBody(body));
    const request = parseReplayRequest(fields);
    if (!hasFilter(request)) throw new Error(NO_FILTER);
    requireDestinations(request, destinations);
    const isDryRun = parseFlag(fields, "dryRun") ?? false;
    if (request.inbox && !isDryRun) throw new Error('"inbox" needs "dryRun" here; POST /admin/replay moves the rows');
    return { request, by: parseCaller(fields), perSecond: parsePerSecond(fields.perSecond), isDryRun };
  };

/** Body `{"toDestination": "billing", "by": "alice"}`, or none. */
export const parseMessageReplay = (destinations: readonly string[]) => (request: AdminRequest) => {
  const toDestination = single(requireObject(parseOptionalBody(request.body)), "toDestination", parseText);
  requireDestinations({ toDestination }, destinations);
  return { ...parseTarget(request), toDestination };
};

/** A misspelt name would mean no row. @throws Error that names the field */
function requireDestinations(
  { destination, toDestination }: Pick<ReplayRequest, "destination" | "toDestination">,
  names: readonly string[],
): void {
  for (const [field, name] of Object.entries({ destination, toDestination })) {
    if (name === undefined || names.includes(name)) continue;
    const expected = `the name of a destination is expected (${knownNames(names)})`;
    throw new Error(`"${field}" is ${JSON.stringify(name)}; ${expected}`);
  }
}

export function knownNames(names: readonly string[]): string {
  return names.length === 0 ? "there are none" : `there are ${names.join(", ")}`;
}

function parsePerSecond(value: unknown): number | null {
  if (value === undefined || value === null) return null;
  if (typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= MOST_PER_SECOND) return value;
  throw new Error(`"perSecond" is not valid; a whole number from 1 to ${MOST_PER_SECOND} is expected`);
}

const SAMPLE_SIZE = 10;
const MOST_JOBS = 50;

type JobRequest = ReturnType<typeof parseTarget>;

/** The work of the routes `/admin/replays`. A replay runs in this process, also when its caller has gone. */
export function jobChanges(jobs: ReplayJobs, run: RunChange, heavyReads: HeavyReads, log: Log) {
  const execute = (job: JobRun): void => {
    run((signal) => jobs.execute(job, signal)).catch((error: unknown) =>
      log.error({ job: job.id, reason: errorText(error) }, "replay job failed"),
    );
  };
  const jobOf = async ({ id }: JobRequest) => {
    const job = id === undefined ? undefined : await jobs.get(id);
    if (job === undefined) throw new Refusal(404, ERRORS.noJob);
    return job;
  };
  const change =
    (what: "cancelled" | "resumed", work: (id: string, by: string) => Promise<boolean>) => (request: JobRequest) =>
      onTable(ERRORS.noJobTable, async () => {
        const { id, state } = await jobOf(request);
        if (!(await work(id, request.by))) throw new Refusal(409, `The job cannot be ${what}: it is ${state}`);
        return (await jobs.get(id)) ?? {};
      });
  return {
    list: () => onTable(ERRORS.noJobTable, async () => ({ jobs: await jobs.list(MOST_JOBS) })),

    start: ({ request, by, perSecond, isDryRun }: ReturnType<ReturnType<typeof parseJob>>) =>
      onTable(ERRORS.noJobTable, async () => {
        if (!isDryRun) {
          const job = await run((signal) => jobs.start(request, by, perSecond, signal));
          execute(job);
          return (await jobs.get(job.id)) ?? {};
        }
        const preview = () => run((signal) => jobs.preview(request, SAMPLE_SIZE, signal));
        const { count, isExact, sample } = await heavyReads(`preview ${JSON.stringify(request)}`, preview);
        const rows = sample.map(({ lastError: _lastError, destinationOverride: _override, ...row }) => ({
          ...row,
          sequence: splitSequence(row.sequence).sequence,
        }));
        return { count, isExact, sample: rows };
      }),

    show: (request: JobRequest) => onTable(ERRORS.noJobTable, () => jobOf(request)),

    cancel: change("cancelled", (id, by) => jobs.cancel(id, by)),

    resume: change("resumed", async (id, by) => {
      const job = await jobs.resume(id, by);
      if (job !== undefined) execute(job);
      return job !== undefined;
    }),
  };
}

/** The work of an action on one message. */
export function messageAction<T extends { readonly id: MessageId | undefined }>(
  act: (request: T & { readonly id: MessageId }) => Promise<ActionResult>,
) {
  return async (request: T): Promise<object> => {
    const { id } = request;
    const result = id === undefined ? ({ kind: "missing" } as const) : await act({ ...request, id });
    if (result.kind === "missing") throw new Refusal(404, ERRORS.noMessage);
    if (result.kind === "refused") throw new Refusal(409, capitalized(result.reason));
    return { changed: 1 };
  };
}

function capitalized(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}`;
}
