import { PublishError } from "../../../model/errors.ts";
import { KAFKA_FAULT_CODES, kafkaFault } from "../../brokers/kafka/faults.ts";

/** Why a publish to Kafka failed: the codes of its `PublishError`. */
export const KAFKA_ERROR_CODES = [
  ...KAFKA_FAULT_CODES,
  /** The message has no topic. */
  "no_topic",
  "closed",
] as const;
type KafkaErrorCode = (typeof KAFKA_ERROR_CODES)[number];

/** A {@link PublishError} whose code is one of {@link KAFKA_ERROR_CODES}. */
export function kafkaError(code: KafkaErrorCode, message: string, status?: string): PublishError {
  return new PublishError(code, message, { status });
}

/**
 * @param what what failed, for the message: `publish to topic "orders" on 10.0.0.1:9092`
 * @param error what the client threw; a `PublishError` is returned unchanged
 */
export function publishErrorOf(what: string, error: unknown): PublishError {
  if (error instanceof PublishError) return error;
  const { code, text, status } = kafkaFault(error);
  return kafkaError(code, `${what} failed: ${text}`, status);
}

const NAME = /^[a-zA-Z0-9._-]{1,249}$/;

/** @throws PublishError `no_topic`, or `topic_invalid`, which is permanent: no broker accepts such a name */
export function checkedTopic(address: string | null): string {
  if (address === null || address === "") {
    throw kafkaError("no_topic", "the message has no topic: the destination's topic or topicFrom rendered nothing");
  }
  if (!NAME.test(address) || address === "." || address === "..") {
    const shown = address.length > 60 ? `${address.slice(0, 60)}…` : address;
    throw new PublishError(
      "topic_invalid",
      `${JSON.stringify(shown)} is not a topic name: 1 to 249 characters of a to z, A to Z, 0 to 9, ".", "_" and "-" are expected; correct the destination's topic or topicFrom`,
      { isPermanent: true },
    );
  }
  return address;
}
