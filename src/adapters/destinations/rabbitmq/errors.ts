import { PublishError } from "../../../model/errors.ts";
import { RABBITMQ_FAULT_CODES, type RabbitmqFault } from "../../brokers/rabbitmq/fault.ts";

/** Why a publish to RabbitMQ failed: the codes of its `PublishError`. */
export const RABBITMQ_ERROR_CODES = [
  ...RABBITMQ_FAULT_CODES,
  /** The exchange has no queue for the routing key. */
  "unroutable",
  /** The broker refused the message. */
  "nacked",
  /** The broker blocked publishers, for lack of memory or disk, until the timeout. */
  "blocked",
  /** The message exceeds the broker's limit. */
  "message_too_large",
  /** AMQP cannot carry a header, the routing key or the exchange's name. */
  "message_invalid",
] as const;
type RabbitmqErrorCode = (typeof RABBITMQ_ERROR_CODES)[number];

/** A {@link PublishError} whose code is one of {@link RABBITMQ_ERROR_CODES}. */
export function rabbitmqError(code: RabbitmqErrorCode, message: string, status?: string): PublishError {
  return new PublishError(code, message, { isPermanent: code === "message_invalid", status });
}

export function publishErrorOf(fault: RabbitmqFault): PublishError {
  return rabbitmqError(fault.code, fault.message, fault.status);
}
