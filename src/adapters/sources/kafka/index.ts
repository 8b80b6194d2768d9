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
  const { log, clock } = tools;
  const stopping = new AbortController();
  const backoff = new Backoff(tools.random);
  let session: GroupSession | undefined;
  let begun = false;
  let fault = "the source has not been started";
  let running: Promise<void> | undefined;

  const run = async (): Promise<void> => {
    for (let attempt = 0; !stopping.signal.aborted; attempt++) {
      const current = new GroupSession(config, tools, times, attempt, begun);
      session = current;
      try {
        await current.run();
      } catch (error) {
        const { code, text } = kafkaFault(error);
        const { joinedAt } = current;
        session = undefined;
        begun ||= joinedAt !== undefined;
        if (stopping.signal.aborted) return;
        fault = text;
        if (joinedAt !== undefined && clock.monotonic() - joinedAt > STABLE_MS) backoff.reset();
        const retryMs = backoff.next();
        log.warn({ code, reason: text, retryMs }, "the Kafka source does not consume");
        await pause(retryMs, stopping.signal);
      }
    }
  };

  const problem = (): string | undefined => {
    if (session === undefined || stopping.signal.aborted) return fault;
    // Until it is a member again, the last fault says more.
    return session.joinedAt === undefined ? fault || session.problem : session.problem;
  };

  return {
    name: `kafka.${tools.name}`,
    async start() {
      if (stopping.signal.aborted) return;
      fault = "";
      running ??= run();
    },
    async stop(cutoff) {
      fault = "the source was stopped";
      stopping.abort();
      await session?.stop(cutoff);
      await running;
    },
    async check() {
      const reason = problem();
      if (reason === undefined) return;
      const { topics, groupId, bootstrapServers } = config;
      throw new Error(`not consuming ${topics.join(", ")} as group ${groupId} from ${bootstrapServers}: ${reason}`);
    },
  };
}
