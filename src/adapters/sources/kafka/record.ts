import type { KafkaMessage } from "kafkajs";
import type { BrokerMessage } from "../../../ports/source.ts";
import { headerText } from "../../brokers/headerText.ts";

/**
 * A record as the intake takes it.
 *
 * The key is text, in base64 where it is not UTF-8; an empty key counts as none, since all records with it would count as the same one. Of a header
 * that occurs several times the last value counts, as in Kafka's own `lastHeader`; one without value is left out.
 */
export function brokerMessage(
  { key, value, headers = {}, offset, timestamp }: KafkaMessage,
  topic: string,
  partition: number,
): BrokerMessage {
  const texts = Object.entries(headers).flatMap(([name, values]) => {
    const text = headerText(Array.isArray(values) ? values.at(-1) : values);
    return text === null ? [] : [[name, text] as const];
  });
  return {
    body: value,
    headers: Object.fromEntries(texts),
    origin: {
      "x-kafka-topic": topic,
      "x-kafka-partition": String(partition),
      "x-kafka-offset": offset,
      "x-kafka-timestamp": timeOf(timestamp),
    },
    recordKey: headerText(key) || undefined,
  };
}

/** @param timestamp ms since the Unix epoch; below 0 when the record has none */
function timeOf(timestamp: string): string | null {
  const time = new Date(Number(timestamp));
  return Number(timestamp) < 0 || Number.isNaN(time.getTime()) ? null : time.toISOString();
}
