import { PublishError } from "../../../model/errors.ts";
import { RABBITMQ_FAULT_CODES, type RabbitmqFault } from "../../brokers/rabbitmq/fault.ts";

/** Why a publish to RabbitMQ failed: the codes of its `PublishError`. */
export const RABBITMQ_ERROR_CODES = [
  ...RABBITMQ_FAULT_CODES,
  /** The exchange has no queue for the routing key. */
  "unroutable",
  /** The broker answered that it did not take the message. */
  "nacked",
  /** The broker lets nobody publish, for want of memory or disk, and did so until the time was over. */
  "blocked",
  /** The message is larger than the broker takes. */
  "message_too_large",
  /** A header, the routing key or the exchange's name cannot go over AMQP. */
  "message_invalid",
] as const;
type RabbitmqErrorCode = (typeof RABBITMQ_ERROR_CODES)[number];

/** A {@link PublishError} whose code is one of {@link RABBITMQ_ERROR_CODES}. */
export function rabbitmqError(code: RabbitmqErrorCode, message: string, status?: string): PublishError {
  return new PublishError(code, message, { isPermanent: code === "message_invalid", status });
}

/** The publish that a fault of the connection ended. */
export function publishErrorOf(fault: RabbitmqFault): PublishError {
  return rabbitmqError(fault.code, fault.message, fault.status);
}
