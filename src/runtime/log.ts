import { write, writeSync } from "node:fs";
import { hostname } from "node:os";
import { pino } from "pino";
import { prettyFactory } from "pino-pretty";
import { ConfigError, errorText } from "../model/errors.ts";
import { escapeUnseen } from "../model/text.ts";
import type { Log } from "../ports/runtime.ts";

/** The `Log` port over pino: one JSON object a line on standard output, or coloured text when that is a terminal. */

const LOG_LEVELS = ["trace", "debug", "info", "warn", "error", "fatal"] as const;
type LogLevel = (typeof LOG_LEVELS)[number];

/** The name of this process among the replicas. */
export const REPLICA = `${hostname()}-${process.pid}`;

/** Takes secrets out of a text. */
type Redactor = (text: string) => string;

export interface LogOptions {
  readonly level: LogLevel;
  readonly roles: readonly string[];
  /** Applied to {@link TEXT_FIELDS} and {@link ERROR_FIELDS}, whose texts come from outside. Default: none. */
  readonly redact?: Redactor;
  /** Default: {@link REPLICA}. */
  readonly replica?: string;
  /** Default: standard output. */
  readonly output?: LogOutput;
}

type LogOutput = { readonly write: (line: string) => void; readonly flush?: () => void };

export interface RunningLog {
  readonly log: Log;
  /** Writes out what is buffered; for the moment before the process ends. Never throws. */
  flush(): void;
}

/** Fields that may quote an answer, an address or a driver's message: plain texts, and errors. */
const TEXT_FIELDS = ["reason", "stack", "ignored"] as const;
const ERROR_FIELDS = ["error", "err"] as const;

/** Reads a value of `LOG_LEVEL`, in any letter case; `info` by default. @throws ConfigError that lists the levels */
export function parseLogLevel(value: string | undefined): LogLevel {
  if (value === undefined || value.trim() === "") return "info";
  const level = LOG_LEVELS.find((each) => each === value.trim().toLowerCase());
  if (level !== undefined) return level;
  throw new ConfigError([
    { path: "LOG_LEVEL", message: `found ${JSON.stringify(value)}, expected one of ${LOG_LEVELS.join(", ")}` },
  ]);
}

/**
 * Makes the log of the process. Every line carries `service`, `roles`, `replica` and its time in ISO 8601. An error or
 * text under `error` or `err` becomes `{ message, code? }`; the message includes the causes.
 */
export function createLog(options: LogOptions): RunningLog {
  const output = options.output ?? (process.stdout.isTTY ? terminal() : standardOutput());
  const redact = options.redact ?? ((text) => text);
  const outages = new Outages();
  const log = pino(
    {
      level: options.level,
      base: { service: "svc", roles: options.roles, replica: options.replica ?? REPLICA },
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      hooks: {
        logMethod(args, write, level) {
          if (level < ERROR || outages.mayWrite(this, args[0])) write.apply(this, args);
        },
      },
      serializers: {
        ...Object.fromEntries(TEXT_FIELDS.map((field) => [field, (value: unknown) => textField(value, redact)])),
        ...Object.fromEntries(ERROR_FIELDS.map((field) => [field, (value: unknown) => errorField(value, redact)])),
      },
    },
    // Escapes within JSON: a reader of the line gets the original text.
    { write: (line) => output.write(escapeUnseen(line)) },
  );
  return {
    log,
    flush: () => ignoringFaults(() => output.flush?.()),
  };
}

/**
 * Errors while the database does not answer: every loop and every receipt has them, many times a second. The first is
 * written, and each minute a line with how many more there were.
 */
class Outages {
  /** Further lines since the last one, by cell, and the reason of the newest. */
  readonly #openOutages = new Map<unknown, { more: number; reason: unknown }>();

  /** @param fields of an error's line. @returns whether it is to be written; otherwise it is counted */
  mayWrite(logger: pino.Logger, fields: unknown): boolean {
    const { code, err, reason = err } = Object(fields) as Partial<Record<"code" | "err" | "reason", unknown>>;
    if ((Object(err) as { code?: unknown }).code !== UNAVAILABLE && code !== UNAVAILABLE) return true;
    const { cell } = logger.bindings();
    const outage = this.#openOutages.get(cell);
    this.#openOutages.set(cell, { more: (outage?.more ?? -1) + 1, reason });
    if (outage !== undefined) return false;
    setTimeout(() => {
      const { more, reason: last } = this.#openOutages.get(cell) ?? { more: 0 };
      this.#openOutages.delete(cell);
      // The next minute begins with this line.
      if (more > 0) logger.error({ code: UNAVAILABLE, more, reason: errorText(last) }, STILL_AWAY);
    }, EVERY_MS).unref();
    return true;
  }
}

/** As `StoreError` has it. */
const UNAVAILABLE = "unavailable";
const STILL_AWAY = "the database did not answer: more errors for that in the last minute";
const EVERY_MS = 60_000;
/** Pino's number of the level. */
const ERROR = 50;

function textField(value: unknown, redact: Redactor): unknown {
  return typeof value === "string" ? redact(value) : value;
}

/** Always an object, for a log store takes one type per field. */
function errorField(value: unknown, redact: Redactor): { message: string; code?: string | number } {
  const message = redact(errorText(value));
  const { code } = value instanceof Error ? (value as { code?: unknown }) : {};
  return typeof code === "string" || typeof code === "number" ? { message, code } : { message };
}

/** Lines wait in memory for at most this long ... */
const FLUSH_INTERVAL_MS = 200;
/** ... or until there are this many characters: with one line per message that is a system call in about a hundred. */
const GATHERED_LENGTH = 32 * 1024;
/** Most characters of lines that a blocked reader has not taken; further ones are dropped. */
const MAX_WAITING_LENGTH = 16 * 1024 * 1024;
/** Until a reader that takes nothing is tried again. */
const RETRY_MS = 100;
/** Longest wait for such a reader at the end of the process. */
const LAST_WAIT_MS = 2000;

/**
 * Standard output, written asynchronously. A normal end of the process, `process.exit` and an uncaught exception write
 * everything out. SIGKILL or a power cut lose the lines of the last {@link FLUSH_INTERVAL_MS} (and what a blocked
 * reader has not taken); the state of messages is in the database. Lines without a reader are dropped.
 *
 * Of our own: pino's destination repeats the last write for ever if the reader has gone, so the process never ends.
 */
function standardOutput(): LogOutput {
  const lines = new GatheredLines();
  process.once("beforeExit", () => lines.send());
  process.once("exit", () => lines.flush());
  return lines;
}

class GatheredLines implements LogOutput {
  #waiting = "";
  #dropped = 0;
  #timer: NodeJS.Timeout | undefined;
  /** What the write under way has left. */
  #leftBytes: Buffer = NOTHING;
  /** More lines are due when that has ended. */
  #isBehind = false;
  #hasReader = true;

  write(line: string): void {
    if (!this.#hasReader) return;
    if (this.#waiting.length + line.length > MAX_WAITING_LENGTH) {
      this.#dropped += 1;
      return;
    }
    this.#waiting += line;
    if (this.#waiting.length >= GATHERED_LENGTH) this.send();
    else this.#timer ??= setTimeout(() => this.send(), FLUSH_INTERVAL_MS).unref();
  }

  /** Begins to write what waits, or does so when the write under way has ended. */
  send(): void {
    this.#isBehind = this.#leftBytes.length > 0;
    if (this.#isBehind) return;
    this.#leftBytes = Buffer.from(this.#take());
    this.#writeLeft();
  }

  /** Writes what waits at once, as far as somebody takes it. */
  flush(): void {
    const until = performance.now() + LAST_WAIT_MS;
    for (let rest = Buffer.from(this.#take()); rest.length > 0; ) {
      try {
        rest = rest.subarray(writeSync(STANDARD_OUTPUT, rest));
      } catch (error) {
        if (!isBusy(error) || performance.now() > until) return;
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, RETRY_MS);
      }
    }
  }

  #writeLeft(): void {
    if (this.#leftBytes.length === 0) return;
    write(STANDARD_OUTPUT, this.#leftBytes, (error, written) => {
      if (isBusy(error)) {
        setTimeout(() => this.#writeLeft(), RETRY_MS);
        return;
      }
      this.#hasReader = error === null;
      this.#leftBytes = error === null ? this.#leftBytes.subarray(written) : NOTHING;
      if (this.#leftBytes.length > 0) this.#writeLeft();
      else if (this.#isBehind) this.send();
    });
  }

  #take(): string {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const lines = this.#dropped === 0 ? this.#waiting : this.#waiting + droppedLine(this.#dropped);
    this.#waiting = "";
    this.#dropped = 0;
    return lines;
  }
}

const STANDARD_OUTPUT = 1;
const NOTHING = Buffer.alloc(0);

/** Whether a reader takes nothing just now. */
function isBusy(error: unknown): boolean {
  return (error as NodeJS.ErrnoException | null)?.code === "EAGAIN";
}

function droppedLine(dropped: number): string {
  const time = new Date().toISOString();
  return `${JSON.stringify({ level: "warn", time, service: "svc", dropped, msg: "log lines dropped" })}\n`;
}

function ignoringFaults(flush: () => void): void {
  try {
    flush();
  } catch {
    // What takes the lines is gone or full at the end of the process.
  }
}

/** A terminal, written synchronously and in this thread, so that lines come in order with what else is printed. */
function terminal(): LogOutput {
  const destination = pino.destination({ dest: 1, sync: true });
  return { write: (line) => destination.write(prettyLine(line)) };
}

const prettify = prettyFactory({
  colorize: true,
  singleLine: true,
  errorLikeObjectKeys: [],
  translateTime: "SYS:HH:MM:ss.l",
  ignore: "service,roles,replica,pid,hostname",
});

/** A line as a terminal shows it: its JSON is read and written anew, which undoes the escapes. */
export function prettyLine(line: string): string {
  return escapeUnseen(prettify(line) ?? "");
}
