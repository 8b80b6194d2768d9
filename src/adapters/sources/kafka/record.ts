import type { KafkaMessage } from "kafkajs";
import type { BrokerMessage } from "../../../ports/source.ts";
import { headerText } from "../../brokers/headerText.ts";

/**
 * A record as the intake takes it.
 *
 * The key is text, in base64 where it is no UTF-8; an empty key counts as none, since all records with it would count as the same one. Of a header
 * that occurs several times the last value counts, as in Kafka's own `lastHeader`; one without value is left out.
 */
export function brokerMessage({ key, value, headers = {} }: KafkaMessage): BrokerMessage {
  const texts = Object.entries(headers).flatMap(([name, values]) => {
    const text = headerText(Array.isArray(values) ? values.at(-1) : values);
    return text === null ? [] : [[name, text] as const];
  });
  return { body: value, headers: Object.fromEntries(texts), recordKey: headerText(key) || undefined };
}
