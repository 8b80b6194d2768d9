import type { MsgHdrs } from "nats";
import type { PublishError } from "../../../model/errors.ts";
import type { OutboundMessage } from "../../../ports/destination.ts";
import { BrokerPublication, type PublicationBounds } from "../../brokers/publication.ts";
import { natsError } from "./errors.ts";
import { natsHeaders } from "./headers.ts";
import { publishableSubject } from "./subject.ts";

/** One publish and what goes over NATS for it. */
export class Publication extends BrokerPublication {
  readonly subject: string;
  readonly headers: MsgHdrs;
  readonly body: Buffer;
  #phase = "waiting for a connection";

  /**
   * @param internalToken the internal subject that the configuration names, if any
   * @throws PublishError when the message cannot go over NATS
   */
  constructor(message: OutboundMessage, bounds: PublicationBounds, internalToken: string | undefined) {
    super(bounds);
    this.subject = publishableSubject(message.address, internalToken);
    this.headers = natsHeaders(message);
    this.body = Buffer.from(message.body, "utf8");
  }

  /**
   * It is on its way.
   *
   * @param phase what it waits for, for the message of a timeout
   * @param onEnd called when it ends for whatever reason
   */
  sent(phase: string, onEnd?: () => void): void {
    this.#phase = phase;
    if (onEnd !== undefined) this.onEnd = onEnd;
  }

  protected override expiryError(): PublishError {
    return natsError("timeout", `the publish to ${this.subject} took longer than ${this.timeoutMs} ms, ${this.#phase}`);
  }
}
