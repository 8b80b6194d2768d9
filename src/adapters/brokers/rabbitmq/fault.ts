import { errorText } from "../../../model/errors.ts";
import { NETWORK_FAULT_CODES, networkFaultCode } from "../../../model/networkFaults.ts";

/** Why RabbitMQ could not be reached or refused a request. */
export const RABBITMQ_FAULT_CODES = [
  /** The configured URL is not an AMQP URI. */
  "url_invalid",
  ...NETWORK_FAULT_CODES,
  /** The credentials were refused. */
  "credentials",
  /** The virtual host is missing, or the user has no access to it. */
  "vhost",
  /** The user lacks a permission (AMQP 403). */
  "access_refused",
  /** The queue or exchange does not exist (AMQP 404). */
  "not_found",
  /** The queue or exchange exists with other properties, or a limit of the broker is exceeded (AMQP 406). */
  "precondition_failed",
  /** Another connection holds the queue or exchange exclusively (AMQP 403 and 405). */
  "locked",
  /** The peer does not speak AMQP 0-9-1, or violates it. */
  "protocol",
  /** This side closed the connection. */
  "closed",
  "other",
] as const;
export type RabbitmqFaultCode = (typeof RABBITMQ_FAULT_CODES)[number];

/** RabbitMQ cannot be used. The message is written for an operator and holds no credentials. */
export class RabbitmqFault extends Error {
  override readonly name = "RabbitmqFault";
  readonly code: RabbitmqFaultCode;
  /** The AMQP reply code, if RabbitMQ sent one. */
  readonly status: string | undefined;

  constructor(code: RabbitmqFaultCode, message: string, status?: string) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

/** Reply codes of AMQP 0-9-1, section 1.8, with which RabbitMQ closes a channel or connection. */
const REPLY_CODES: Readonly<Record<number, RabbitmqFaultCode>> = {
  320: "connection_lost",
  403: "access_refused",
  404: "not_found",
  405: "locked",
  406: "precondition_failed",
  501: "protocol",
  502: "protocol",
  503: "protocol",
  504: "protocol",
  505: "protocol",
  530: "vhost",
};
/** Faults that the client library reports only as text. */
const TEXTS: readonly (readonly [RegExp, RabbitmqFaultCode])[] = [
  [/Heartbeat timeout|Unexpected close|Socket closed abruptly|Connection clos|Channel (ended|clos)/, "connection_lost"],
  [/SASL mechanism|Expected |frameMax|Frame |Invalid frame|unknown channel|Unexpected frame|frame type/, "protocol"],
];

/** @param error what the client library or the socket threw, of any type */
export function faultCode(error: unknown): RabbitmqFaultCode {
  if (error instanceof RabbitmqFault) return error.code;
  const { code, message } = Object(error) as { readonly code?: unknown; readonly message?: unknown };
  if (typeof code === "number") return REPLY_CODES[code] ?? "other";
  return networkFaultCode(code) ?? TEXTS.find(([pattern]) => pattern.test(String(message)))?.[1] ?? "other";
}

/**
 * Makes a fault of an error; returns a fault unchanged.
 *
 * @param context what was tried, such as `amqp://broker:5672/orders: the connection failed`
 */
export function faultOf(context: string, error: unknown): RabbitmqFault {
  if (error instanceof RabbitmqFault) return error;
  const { code } = Object(error) as { readonly code?: unknown };
  const status = typeof code === "number" ? String(code) : undefined;
  return new RabbitmqFault(faultCode(error), `${context}: ${reasonOf(error)}`, status);
}

/** RabbitMQ's own reason, without the client library's words around it. */
export function reasonOf(error: unknown): string {
  const text = errorText(error);
  return /\d+ \([A-Z-]+\) with message "(.*)"/s.exec(text)?.[1] ?? text;
}
