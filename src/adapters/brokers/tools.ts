import type { Log } from "../../ports/runtime.ts";
import type { Intake } from "../../ports/source.ts";
import type { Clock, Random } from "../../time/clock.ts";

/** What a broker adapter asks of its process. */
export interface BrokerTools {
  readonly log: Log;
  readonly clock: Clock;
  readonly random: Random;
}

/** What a broker source is given besides its settings. */
export interface SourceTools extends BrokerTools {
  /** The source's name. The log has it in every line already. */
  readonly name: string;
  readonly intake: Intake;
  /** Wait before a message that the inbox table refused is offered to it again, in ms; 10 s, but for tests. */
  readonly refusedRetryMs?: number | undefined;
}

/** Wait before a message that the inbox table refused is offered to it again, in ms. */
export const REFUSED_RETRY_MS = 10_000;
