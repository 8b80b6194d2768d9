import { errorText } from "../../../model/errors.ts";
import { NETWORK_FAULT_CODES, networkFaultCode } from "../../../model/networkFaults.ts";

/** Faults between the service and Kafka. */
export const KAFKA_FAULT_CODES = [
  ...NETWORK_FAULT_CODES,
  /** The broker refuses the credentials or the mechanism. */
  "authentication",
  /** The user lacks a permission. */
  "authorization",
  "topic_missing",
  "topic_invalid",
  /** The record exceeds a limit of the topic or broker. */
  "message_too_large",
  /** The broker refuses the content of the record. */
  "message_refused",
  /** Temporarily unavailable: no leader, too few replicas, a coordinator that is moving. */
  "not_available",
  /** The broker lost the state of the producer; a new producer can continue. */
  "producer_state",
  "other",
] as const;
type KafkaFaultCode = (typeof KAFKA_FAULT_CODES)[number];

interface KafkaFault {
  readonly code: KafkaFaultCode;
  /** For an operator: what happened and, if it helps, what to do. Holds no credentials. */
  readonly text: string;
  /** The name of the broker's error code, if it sent one. */
  readonly status: string | undefined;
}

/** Names of the broker's error codes (Kafka protocol guide, "Error Codes") by meaning. */
const PROTOCOL_CODES: Readonly<Record<string, KafkaFaultCode>> = {
  UNKNOWN_TOPIC_OR_PARTITION: "topic_missing",
  INVALID_TOPIC_EXCEPTION: "topic_invalid",
  MESSAGE_TOO_LARGE: "message_too_large",
  RECORD_LIST_TOO_LARGE: "message_too_large",
  CORRUPT_MESSAGE: "message_refused",
  INVALID_TIMESTAMP: "message_refused",
  INVALID_RECORD: "message_refused",
  TOPIC_AUTHORIZATION_FAILED: "authorization",
  GROUP_AUTHORIZATION_FAILED: "authorization",
  CLUSTER_AUTHORIZATION_FAILED: "authorization",
  SASL_AUTHENTICATION_FAILED: "authentication",
  UNSUPPORTED_SASL_MECHANISM: "authentication",
  ILLEGAL_SASL_STATE: "authentication",
  LEADER_NOT_AVAILABLE: "not_available",
  NOT_LEADER_FOR_PARTITION: "not_available",
  REPLICA_NOT_AVAILABLE: "not_available",
  NOT_ENOUGH_REPLICAS: "not_available",
  NOT_ENOUGH_REPLICAS_AFTER_APPEND: "not_available",
  GROUP_COORDINATOR_NOT_AVAILABLE: "not_available",
  NOT_COORDINATOR_FOR_GROUP: "not_available",
  KAFKA_STORAGE_ERROR: "not_available",
  REQUEST_TIMED_OUT: "timeout",
  OUT_OF_ORDER_SEQUENCE_NUMBER: "producer_state",
  DUPLICATE_SEQUENCE_NUMBER: "producer_state",
  INVALID_PRODUCER_EPOCH: "producer_state",
  INVALID_PRODUCER_ID_MAPPING: "producer_state",
  UNKNOWN_PRODUCER_ID: "producer_state",
};

const ADVICE: Partial<Readonly<Record<KafkaFaultCode, string>>> = {
  connection_lost: "if it always is, check that securityProtocol fits the port",
  tls: "check securityProtocol and the broker's certificate; NODE_EXTRA_CA_CERTS names a file of further authorities",
  authentication: "check saslMechanism, saslUsername and saslPassword",
  authorization: "the user needs an ACL for it",
};

/** @param error what the client threw; it wraps the relevant error in others */
export function kafkaFault(error: unknown): KafkaFault {
  const root = rootOf(error);
  const code = codeOf(root);
  const said = errorText(root);
  const advice = ADVICE[code];
  const { type } = Object(root) as { readonly type?: unknown };
  return {
    code,
    text: advice === undefined ? said : `${said}; ${advice}`,
    status: typeof type === "string" ? type : undefined,
  };
}

function rootOf(error: unknown): unknown {
  let root = error;
  for (let depth = 0; depth < 10; depth++) {
    const cause = root instanceof Error ? root.cause : undefined;
    if (!(cause instanceof Error)) break;
    root = cause;
  }
  return root;
}

function codeOf(error: unknown): KafkaFaultCode {
  const { name, type, code, message } = Object(error) as Readonly<Record<string, unknown>>;
  if (typeof type === "string") return PROTOCOL_CODES[type] ?? "other";
  if (name === "KafkaJSSASLAuthenticationError") return "authentication";
  if (name === "KafkaJSRequestTimeoutError") return "timeout";
  if (name === "KafkaJSConnectionClosedError") return "connection_lost";
  if (typeof code === "string") return networkFaultCode(code) ?? "connection_lost";
  if (name === "KafkaJSConnectionError") return message === "Connection timeout" ? "timeout" : "connection_lost";
  return "other";
}
