import type jsonata from "jsonata";
import { TransformError } from "../../model/errors.ts";
import type { Evaluation } from "../../ports/evaluator.ts";
import { compileExpression, countsMembersAsDepth, LinearRegExp, MemberTurns, reasonAt } from "./expression.ts";

interface CompiledEvaluation {
  /**
   * Evaluates one input, JSON text. Calls must not overlap: they would share their limits. An evaluation leaves no
   * state behind, even if it fails.
   *
   * @param bindings variables by name without `$`
   * @returns the result as JSON text, never `undefined`
   * @throws TransformError
   */
  evaluate(input: string, bindings: Evaluation["bindings"]): Promise<string>;
}

/** The limits of one evaluation (spec, "Transform block"). */
export type EvaluationLimits = Pick<Evaluation, "timeoutMs" | "maxDepth">;

/** Items of one array that an expression makes. A payload of the default limit, 1 MiB, holds at most half as many. */
const MAX_SEQUENCE_LENGTH = 1_000_000;

/** A result is stored or sent as one message: 16 times the default limit of a source's body. */
const MAX_RESULT_LENGTH = 16 * 1024 * 1024;

/** Reasons are logged and stored, and JSONata quotes values of any length. */
const MAX_MESSAGE_LENGTH = 300;

/**
 * Compiles an expression with its limits, which are checked at each step. They cannot interrupt a single built-in
 * function that runs long or takes much memory, so evaluate expressions on foreign payloads in an evaluation worker.
 *
 * @throws TransformError `invalid_expression`
 */
export function compileEvaluation(expression: string, limits: EvaluationLimits): CompiledEvaluation {
  const guard = new Guard(limits);
  const compiled = compile(expression, guard);
  const turns = countsMembersAsDepth(compiled, limits.maxDepth) ? new MemberTurns(compiled) : undefined;
  guard.turns = turns;

  async function run(document: unknown, bindings: Evaluation["bindings"]): Promise<string> {
    turns?.reset();
    guard.start();
    try {
      const result: unknown = await compiled.evaluate(document, bindings);
      // A built-in function may have overrun the time without a step in between.
      guard.check();
      return toJson(result);
    } catch (error) {
      // Concurrent members of a constructor end at their next step, before anything else is evaluated.
      guard.stop();
      await new Promise(setImmediate);
      throw transformError(error, expression, limits);
    }
  }

  return {
    async evaluate(input, bindings) {
      const document = parse(input);
      if (mayHoldReserved(input)) refuseReserved(document);
      refuseReserved(bindings);
      return run(document, bindings);
    },
  };
}

function compile(expression: string, guard: Guard): jsonata.Expression {
  try {
    return compileExpression(expression, guard);
  } catch (error) {
    throw new TransformError("invalid_expression", shortened((error as Error).message));
  }
}

function parse(input: string): unknown {
  try {
    return JSON.parse(input);
  } catch {
    throw new TransformError("invalid_input", "the input is not a JSON document");
  }
}

/** Reading the clock costs a tenth of a step; this many steps take a few microseconds. */
const STEPS_PER_CHECK = 16;

class DeadlineError extends Error {
  override readonly name = "DeadlineError";
}

/**
 * The options of an expression, which JSONata reads at every step. Its own `timeout` uses the wall clock, and a clock
 * set forward would fail evaluations. Reading `timeout` here checks the monotonic clock instead and returns 0, which
 * JSONata takes for no limit.
 */
class Guard implements jsonata.JsonataOptions {
  readonly sequence = MAX_SEQUENCE_LENGTH;
  readonly RegexEngine = LinearRegExp as unknown as RegExpConstructor;
  turns: MemberTurns | undefined;
  readonly #limits: EvaluationLimits;
  #deadline = 0;
  #stepsToCheck = 0;

  constructor(limits: EvaluationLimits) {
    this.#limits = limits;
  }

  get stack(): number {
    return this.#limits.maxDepth + (this.turns?.waiting ?? 0);
  }

  get timeout(): number {
    this.#stepsToCheck--;
    if (this.#stepsToCheck <= 0) {
      this.check();
      this.#stepsToCheck = STEPS_PER_CHECK;
    }
    return 0;
  }

  start(): void {
    this.#stepsToCheck = STEPS_PER_CHECK;
    this.#deadline = performance.now() + this.#limits.timeoutMs;
  }

  stop(): void {
    this.#stepsToCheck = 0;
    this.#deadline = 0;
  }

  check(): void {
    if (performance.now() > this.#deadline) throw new DeadlineError();
  }
}

/** @throws TransformError `no_result` or `too_large`; RangeError when the result is nested too deeply */
function toJson(result: unknown): string {
  if (result === undefined) {
    throw new TransformError("no_result", "the expression gave nothing for this input: no path of it found a value");
  }
  new ResultCheck().visit(result);
  const json = JSON.stringify(result);
  if (json.length > MAX_RESULT_LENGTH) throw resultTooLong();
  return json;
}

/** Refuses what `JSON.stringify` would omit, turn into null, or write until memory is full. */
class ResultCheck {
  /** Characters left for the result; every value takes at least one. */
  #leftCharacters = MAX_RESULT_LENGTH;

  visit(value: unknown): void {
    this.#leftCharacters -= typeof value === "string" ? value.length : 1;
    if (this.#leftCharacters < 0) throw resultTooLong();
    if (typeof value === "number" && !Number.isFinite(value)) throw noJson(`the number ${value}`);
    // JSONata's own functions are objects that hold functions, which no payload can.
    if (typeof value === "function") throw noJson("a function");
    if (typeof value !== "object" || value === null) return;
    if (Array.isArray(value)) {
      // By index: a JSONata sequence has keys besides its items.
      for (let i = 0; i < value.length; i++) this.visit(value[i]);
    } else {
      for (const key in value) this.visit((value as Record<string, unknown>)[key]);
    }
  }
}

function noJson(what: string): TransformError {
  return new TransformError("no_result", `the result holds ${what}, which JSON cannot`);
}

function resultTooLong(): TransformError {
  return new TransformError("too_large", `the result is longer than ${MAX_RESULT_LENGTH} characters`);
}

/** Without the cause: a log line would repeat it, and it may hold the payload. */
function transformError(thrown: unknown, expression: string, limits: EvaluationLimits): TransformError {
  if (thrown instanceof TransformError) return thrown;
  const inner = failureInside(thrown);
  if (inner instanceof DeadlineError) {
    return new TransformError("timeout", `the evaluation took longer than ${limits.timeoutMs} ms (timeoutMs)`);
  }
  const { code } = Object(inner) as { readonly code?: unknown };
  if (code === "D1011") {
    return new TransformError("too_deep", `the recursion is deeper than ${limits.maxDepth} (maxDepth)`);
  }
  if (code === "D2014" || code === "D2015") {
    return new TransformError("too_large", `an array would have more than ${MAX_SEQUENCE_LENGTH} items`);
  }
  if (inner instanceof RangeError && /call stack/i.test(inner.message)) {
    return new TransformError("too_deep", "the input or the result is nested too deeply, or an array is too long");
  }
  if (inner instanceof RangeError && /invalid (string|array)|allocation/i.test(inner.message)) {
    return new TransformError("too_large", "a text or an array would be longer than can be held");
  }
  return new TransformError("failed", shortened(reasonAt(expression, inner)));
}

/** `$eval` wraps the error of its expression. */
function failureInside(thrown: unknown): unknown {
  let inner = thrown;
  for (;;) {
    const { code, error } = Object(inner) as { readonly code?: unknown; readonly error?: unknown };
    if (code !== "D3121" || error === undefined) return inner;
    inner = error;
  }
}

function shortened(message: string): string {
  return message.length <= MAX_MESSAGE_LENGTH ? message : `${message.slice(0, MAX_MESSAGE_LENGTH - 1)}…`;
}

/**
 * JSONata marks its functions and arrays by properties of these names, and takes a payload with such a property for a
 * function, a stream of variables, or an array.
 */
const RESERVED = ["_jsonata_lambda", "_jsonata_function", "tupleStream", "outerWrapper"];

/** Whether a JSON text may hold a reserved name, also escaped: all their letters are between U+0050 and U+007F. */
function mayHoldReserved(json: string): boolean {
  return RESERVED.some((name) => json.includes(name)) || (json.includes("\\u00") && /\\u00[5-7]/.test(json));
}

/** @throws TransformError `invalid_input` for a value with a reserved name */
function refuseReserved(value: unknown): void {
  const pending: unknown[] = [value];
  // Not recursive: a payload may be nested deeper than the stack.
  while (pending.length > 0) {
    const next = pending.pop();
    if (typeof next !== "object" || next === null) continue;
    const name = RESERVED.find((each) => Object.hasOwn(next, each));
    if (name !== undefined)
      throw new TransformError("invalid_input", `the input has a member ${name}, which JSONata reserves`);
    for (const child of Object.values(next)) pending.push(child);
  }
}
