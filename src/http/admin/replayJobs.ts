import type { ActionResult, MessageActions } from "../../core/finished/messageActions.ts";
import type { ReplayJobs } from "../../core/finished/replayJobs.ts";
import {
  hasFilter,
  isUuid,
  NO_FILTER,
  parseCaller,
  parseReason,
  parseReplayRequest,
  parseText,
  type ReplayRequest,
  requireObject,
  single,
} from "../../core/finished/requests.ts";
import { StoreError } from "../../model/errors.ts";
import type { MessageId } from "../../model/rows.ts";
import { ERRORS } from "../respond.ts";
import { type AdminRequest, parseJsonBody, parseOptionalBody, Refusal, requireDestination } from "./requests.ts";

/** `/admin/replays`, and what operators do with one message. */

/** What the routes need of the process: jobs that it executes, ended in order when it stops. */
export interface JobControl {
  readonly jobs: Pick<ReplayJobs, "list" | "get" | "cancel">;
  readonly preview: (request: ReplayRequest, sampleSize: number) => ReturnType<ReplayJobs["preview"]>;
  /** Starts a job, which goes on when its caller has gone. @returns its id */
  readonly start: (request: ReplayRequest, by: string, perSecond: number | null) => Promise<string>;
  /** @returns false when it cannot be resumed */
  readonly resume: (id: string, by: string) => Promise<boolean>;
}

export const MOST_PER_SECOND = 100_000;
const SAMPLE_SIZE = 10;
const MOST_JOBS = 50;

/** Body: the filter of a replay, and `toDestination`, `dryRun`, `perSecond`, `by`. */
export function parseJobRequest({ body }: AdminRequest, destinations: readonly string[]) {
  const fields = requireObject(parseJsonBody(body));
  const request = parseReplayRequest(fields);
  if (!hasFilter(request)) throw new Error(NO_FILTER);
  requireDestination("destination", request.destination, destinations);
  requireDestination("toDestination", request.toDestination, destinations);
  return {
    request,
    by: parseCaller(fields),
    perSecond: parsePerSecond(fields.perSecond),
    isDryRun: parseDryRun(fields.dryRun),
  };
}

export function startJob({ preview, start, jobs }: JobControl) {
  return async ({ request, by, perSecond, isDryRun }: ReturnType<typeof parseJobRequest>): Promise<object> =>
    await onTable(async () => {
      if (!isDryRun) return (await jobs.get(await start(request, by, perSecond))) ?? {};
      const { count, isExact, sample } = await preview(request, SAMPLE_SIZE);
      return {
        count,
        isExact,
        sample: sample.map(({ lastError: _lastError, destinationOverride: _override, ...row }) => row),
      };
    });
}

export function listJobs({ jobs }: JobControl) {
  return (): Promise<object> => onTable(async () => ({ jobs: await jobs.list(MOST_JOBS) }));
}

/** @returns undefined for a text that is not an id */
export function parseJobId({ parameters: { id = "" }, body }: AdminRequest) {
  return { id: isUuid(id) ? id.toLowerCase() : undefined, by: parseCaller(parseOptionalBody(body)) };
}

type JobRequest = ReturnType<typeof parseJobId>;

export function showJob({ jobs }: JobControl) {
  return ({ id }: JobRequest): Promise<object> =>
    onTable(async () => {
      const job = id === undefined ? undefined : await jobs.get(id);
      if (job === undefined) throw new Refusal(404, ERRORS.noJob);
      return job;
    });
}

/** @param change returns false when the job's state does not allow it */
export function changeJob(control: JobControl, what: "cancelled" | "resumed") {
  return ({ id, by }: JobRequest): Promise<object> =>
    onTable(async () => {
      const job = id === undefined ? undefined : await control.jobs.get(id);
      if (id === undefined || job === undefined) throw new Refusal(404, ERRORS.noJob);
      const changed = what === "cancelled" ? await control.jobs.cancel(id, by) : await control.resume(id, by);
      if (!changed) throw new Refusal(409, `The job cannot be ${what}: it is ${job.state}`);
      return (await control.jobs.get(id)) ?? {};
    });
}

/** Body `{"by": "alice"}`, or none. */
export function parseAction({ parameters: { id = "" }, body }: AdminRequest) {
  return { id: messageId(id), by: parseCaller(parseOptionalBody(body)) };
}

/** Body `{"toDestination": "billing", "by": "alice"}`, or none. */
export function parseMessageReplay(request: AdminRequest, destinations: readonly string[]) {
  const toDestination = single(requireObject(parseOptionalBody(request.body)), "toDestination", parseText);
  requireDestination("toDestination", toDestination, destinations);
  return { ...parseAction(request), toDestination };
}

/** Body `{"reason": "...", "by": "alice"}`. */
export function parseDiscard({ parameters: { id = "" }, body }: AdminRequest) {
  const fields = requireObject(parseJsonBody(body));
  const reason = single(fields, "reason", parseReason);
  if (reason === undefined) throw new Error('"reason" is missing; a text that says why is expected');
  return { id: messageId(id), by: parseCaller(fields), reason };
}

/** The actions on one message. @param replay runs to its end when its caller has gone */
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

export type MessageControl = Pick<MessageActions, "retry" | "discard"> & {
  readonly replay: (id: MessageId, by: string, toDestination: string | undefined) => Promise<ActionResult>;
};

function messageId(id: string): MessageId | undefined {
  return isUuid(id) ? (id.toLowerCase() as MessageId) : undefined;
}

function capitalized(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}`;
}

async function onTable<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof StoreError && error.code === "schema") throw new Refusal(501, ERRORS.noJobTable);
    throw error;
  }
}

function parsePerSecond(value: unknown): number | null {
  if (value === undefined || value === null) return null;
  if (typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= MOST_PER_SECOND) return value;
  throw new Error(`"perSecond" is not valid; a whole number from 1 to ${MOST_PER_SECOND} is expected`);
}

function parseDryRun(value: unknown): boolean {
  if (value === undefined || value === null) return false;
  if (typeof value === "boolean") return value;
  throw new Error('"dryRun" is not valid; true or false is expected');
}
