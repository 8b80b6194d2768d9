import type { PublishError } from "../../../model/errors.ts";
import type { OutboundMessage } from "../../../ports/destination.ts";
import { BrokerPublication, type PublicationBounds } from "../../brokers/publication.ts";
import { rabbitmqError } from "./errors.ts";
import type { Envelope } from "./properties.ts";

/** One publish and what goes over AMQP for it. */
export class Publication extends BrokerPublication {
  readonly id: string;
  readonly routingKey: string;
  readonly body: Buffer;
  readonly envelope: Envelope;
  /** Whether it was sent on a channel that another message took from it. */
  isRepeated = false;
  /** Makes the error for the end of its time: whoever has it knows what it waits for. */
  onExpire: () => PublishError = () => rabbitmqError("timeout", "the publish took too long");

  constructor(message: OutboundMessage, envelope: Envelope, bounds: PublicationBounds) {
    super(bounds);
    this.id = message.id;
    this.routingKey = message.routingKey ?? "";
    this.body = Buffer.from(message.body, "utf8");
    this.envelope = envelope;
  }

  protected override expiryError(): PublishError {
    return this.onExpire();
  }
}
