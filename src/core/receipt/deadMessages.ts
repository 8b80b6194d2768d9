import { isUtf8 } from "node:buffer";
import type { Consumption, MessageId, NewInboxRow } from "../../model/rows.ts";
import type { Redact } from "../redaction/redact.ts";
import { type AttributePlan, evidenceAttributes } from "./attributes.ts";
import { JsonDocument } from "./jsonDocument.ts";
import type { ReceivedMessage } from "./preparation.ts";

export interface EvidenceOptions {
  /** The source's name. */
  readonly source: string;
  readonly consumption: Consumption;
  readonly attributes: AttributePlan;
  /** Cleans the reasons. */
  readonly redact: Redact;
}

/**
 * Makes the dead rows of messages that can never be accepted: the original payload with the reason (spec, "States and transitions"). Their
 * sender has been told that they arrived, so they are kept where somebody can look at them.
 */
export class Evidence {
  readonly #options: EvidenceOptions;

  constructor(options: EvidenceOptions) {
    this.#options = options;
  }

  /**
   * A dead row that keeps all there is. A body that no text column can hold (no UTF-8, a NUL) is kept in base64.
   *
   * @param reason why the message is dead; it is redacted here
   */
  rowOf(message: ReceivedMessage, id: MessageId, reason: string): NewInboxRow {
    const { attributes, redact } = this.#options;
    const { body, headers, properties } = message;
    const document = JsonDocument.parse(body);
    const isText = isUtf8(body) && !body.includes(0);
    return {
      ...this.#frame(message, id),
      ...evidenceAttributes(attributes, { body, document: document ?? NO_DOCUMENT, headers, properties }),
      payload: isText ? body.toString("utf8") : body.toString("base64"),
      headers,
      lastError: redact(isText ? reason : `${reason}; the payload is its bytes in base64`),
    };
  }

  /**
   * A dead row that any inbox table can hold, also one whose payload column is of type json: the body in base64 as a JSON text, and nothing else
   * that came from outside.
   *
   * @param reason why the message is dead; it is redacted here
   */
  plainRowOf(message: ReceivedMessage, id: MessageId, reason: string): NewInboxRow {
    const { attributes, redact } = this.#options;
    const { body, headers, properties } = message;
    const { idempotencyKey } = evidenceAttributes(attributes, { body, document: NO_DOCUMENT, headers, properties });
    return {
      ...this.#frame(message, id),
      idempotencyKey,
      eventType: null,
      aggregateId: null,
      payload: JSON.stringify(body.toString("base64")),
      headers: {},
      lastError: redact(`${reason}; the payload is its bytes in base64, the headers are left out`),
    };
  }

  #frame({ correlationId }: ReceivedMessage, id: MessageId) {
    const { source, consumption } = this.#options;
    return { id, source, consumption, correlationId, state: "dead" } as const;
  }
}

const NO_DOCUMENT = new JsonDocument("null");
