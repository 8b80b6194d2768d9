import { setImmediate as nextTurn } from "node:timers/promises";
import { errorText } from "../../../model/errors.ts";
import type { NatsLink } from "../../brokers/nats/link.ts";
import type { Publication } from "./publication.ts";
import { lostBefore, notPermitted, type Session, write } from "./session.ts";

/**
 * Publishes without acknowledgement: a publish succeeds when the server has read it, which a flush tells. Whether anybody receives it is not known. One
 * flush serves all publishes of the same turn, and all that come while another is under way.
 */
export class CoreSession implements Session {
  readonly link: NatsLink;
  /** Written, and not yet flushed by a flush that began after. */
  #written = new Set<Publication>();
  /** Those that the flush under way speaks for. */
  #flushed: ReadonlySet<Publication> = new Set();
  #flushing = false;

  constructor(link: NatsLink) {
    this.link = link;
    link.onViolation(({ operation, subject }) => {
      if (operation !== "publish") return;
      for (const publication of [...this.#flushed, ...this.#written])
        if (publication.subject === subject) publication.fail(notPermitted(subject));
    });
  }

  send(publication: Publication): void {
    if (!write(this.link, publication)) return;
    publication.sent("waiting for the server to read it");
    this.#written.add(publication);
    if (this.#flushing) return;
    this.#flushing = true;
    void this.#flush();
  }

  async #flush(): Promise<void> {
    await nextTurn();
    while (this.#written.size > 0) {
      this.#flushed = this.#written;
      this.#written = new Set();
      try {
        await this.link.flush();
        // What the server does not permit it tells before it answers the flush, and the client hands on a moment later.
        await nextTurn();
        for (const publication of this.#flushed) publication.succeed();
      } catch (error) {
        const lost = lostBefore("the server had confirmed to have read it", errorText(error));
        for (const publication of this.#flushed) publication.fail(lost);
      }
    }
    this.#flushed = new Set();
    this.#flushing = false;
  }
}
