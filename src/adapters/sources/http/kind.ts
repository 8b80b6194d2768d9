import type { Infer } from "../../../model/schema.ts";
import type { When } from "../../../ports/kinds.ts";
import { httpSourceSchema, type inboundAuthSchema } from "./schema.ts";

/** An HTTP source (spec, "HTTP source keys"): a route of the HTTP server. */
export const httpSource = { schema: httpSourceSchema } as const;

/**
 * The rule of inbound credentials (spec, "Source auth kinds"): a signature over a timestamp needs a header with it.
 *
 * @param prefix of the keys, such as `auth.`
 */
export function checkInboundAuth(prefix: string, auth: Infer<typeof inboundAuthSchema> | undefined, when: When): void {
  if (auth?.kind !== "hmac") return;
  when([`${prefix}timestampHeader`, `${prefix}signaturePayloadFormat`], (report) => {
    const format = auth.signaturePayloadFormat;
    if (auth.timestampHeader !== undefined || format === undefined || format.toUpperCase() === "BODY") return;
    const message = `is ${format}, which needs timestampHeader: name the header that brings the time`;
    report.error(`${prefix}signaturePayloadFormat`, message);
  });
}
