import type { SourceTools } from "../../../ports/kinds.ts";
import type { Source } from "../../../ports/source.ts";
import { Backoff } from "../../../time/backoff.ts";
import { pause } from "../../../time/wait.ts";
import { kafkaFault } from "../../brokers/kafka/faults.ts";
import type { KafkaSourceConfig } from "./schema.ts";
import { GROUP_TIMES, GroupSession, type GroupTimes } from "./session.ts";

/** After a session of this length the next fault is retried after the shortest wait. */
const STABLE_MS = 10_000;

/**
 * A Kafka source (spec, "Log-broker source"): consumes topics as a member of a consumer group, and commits an offset
 * only after the intake has everything before it. The batches of a partition are taken in turn, several partitions
 * concurrently.
 *
 * @param times times of the membership, for tests
 */
export function createKafkaSource(
  config: KafkaSourceConfig,
  tools: SourceTools,
  times: GroupTimes = GROUP_TIMES,
): Source {
  return new KafkaSource(config, tools, times);
}

class KafkaSource implements Source {
  readonly name: string;
  readonly #config: KafkaSourceConfig;
  readonly #tools: SourceTools;
  readonly #times: GroupTimes;
  readonly #stopping = new AbortController();
  readonly #backoff: Backoff;
  #session: GroupSession | undefined;
  #fault = "the source has not been started";
  #loop: Promise<void> | undefined;

  constructor(config: KafkaSourceConfig, tools: SourceTools, times: GroupTimes) {
    this.name = `kafka.${tools.name}`;
    this.#config = config;
    this.#tools = tools;
    this.#times = times;
    this.#backoff = new Backoff(tools.random);
  }

  async start(): Promise<void> {
    if (this.#stopping.signal.aborted) return;
    this.#fault = "";
    this.#loop ??= this.#run();
  }

  async stop(cutoff: AbortSignal): Promise<void> {
    this.#fault = "the source was stopped";
    this.#stopping.abort();
    await this.#session?.stop(cutoff);
    await this.#loop;
  }

  async check(): Promise<void> {
    const reason = this.#problem();
    if (reason === undefined) return;
    const { topics, groupId, bootstrapServers } = this.#config;
    throw new Error(`not consuming ${topics.join(", ")} as group ${groupId} from ${bootstrapServers}: ${reason}`);
  }

  #problem(): string | undefined {
    if (this.#session === undefined || this.#stopping.signal.aborted) return this.#fault;
    // Until it is a member again, the last fault says more.
    const { joinedAt, problem } = this.#session;
    return joinedAt === undefined ? this.#fault || problem : problem;
  }

  async #run(): Promise<void> {
    const { log, clock } = this.#tools;
    for (let attempt = 0; !this.#stopping.signal.aborted; attempt++) {
      const session = new GroupSession(this.#config, this.#tools, this.#times, attempt);
      this.#session = session;
      try {
        await session.run();
      } catch (error) {
        const { code, text } = kafkaFault(error);
        const { joinedAt } = session;
        this.#session = undefined;
        if (this.#stopping.signal.aborted) return;
        this.#fault = text;
        if (joinedAt !== undefined && clock.monotonic() - joinedAt > STABLE_MS) this.#backoff.reset();
        const retryMs = this.#backoff.next();
        log.warn({ code, reason: text, retryMs }, "the Kafka source does not consume");
        await pause(retryMs, this.#stopping.signal);
      }
    }
  }
}
