import { providerOf } from "../../../../src/adapters/sources/http/kind.ts";
import type { ProviderAuth } from "../../../../src/adapters/sources/http/schema.ts";
import { DEFAULT_TOLERANCE_MS } from "../../../../src/adapters/sources/http/scheme.ts";
import { httpPlan } from "../../../../src/core/receipt/attributes.ts";
import { Secret } from "../../../../src/model/secret.ts";
import { startHttp } from "../harness.ts";
import type { Sender, Sent } from "./senders.ts";

/** The `auth` block of a provider as the configuration loads it. */
export function authOf({ name, settings }: Pick<Sender, "name" | "settings">, ...secrets: readonly string[]) {
  const provider = name as ProviderAuth["provider"];
  const { toleranceMs = DEFAULT_TOLERANCE_MS } = providerOf(provider);
  const all = secrets.map((secret) => new Secret(secret));
  const auth: ProviderAuth = { kind: "provider", provider, secrets: all, timestampTolerance: toleranceMs, ...settings };
  return auth;
}

/**
 * The source `orders` that takes a provider's webhooks, over an inbox in memory.
 *
 * @param batch its `batch`: no path by default
 */
export async function startSource(auth: ProviderAuth, batch: { readonly path?: string } = {}) {
  const http = await startHttp({
    route: {
      auth,
      idempotencyKeyPath: undefined,
      eventTypePath: undefined,
      aggregateIdPath: undefined,
      batch: { atomic: false, maxItems: 10_000, ...batch },
    },
    attributes: httpPlan({}, providerOf(auth.provider)),
  });
  const deliver = ({ headers, body, query = "" }: Sent) => http.post(body, { ...headers }, `/inbox/orders${query}`);
  return Object.assign(http, { deliver });
}

/** A sent request with another signature: `change` gets the text without what stands before it. */
export function withSignature(
  sent: Sent,
  { signature }: Pick<Sender, "signature">,
  change: (text: string) => string,
): Sent {
  if ("header" in signature) {
    const text = sent.headers[signature.header] ?? "";
    const start = /^(?:t=\d+,v1=|ts=\d+;h1=|v1a?,|sha\d+=|v0=)?/.exec(text)?.[0].length ?? 0;
    const changed = text.slice(0, start) + change(text.slice(start));
    return { ...sent, headers: { ...sent.headers, [signature.header]: changed } };
  }
  const document = JSON.parse(sent.body.toString()) as Record<string, unknown>;
  const path = [...signature.member];
  const last = path.pop() ?? "";
  const holder = path.reduce<unknown>((value, name) => (value as Record<string, unknown>)[name], document);
  const members = holder as Record<string, string>;
  members[last] = change(members[last] ?? "");
  return { ...sent, body: Buffer.from(JSON.stringify(document)) };
}

/** A sent request without its signature. */
export function withoutSignature(sent: Sent, { signature }: Pick<Sender, "signature">): Sent {
  if (!("header" in signature)) return { ...sent, body: Buffer.from('{"value":[{}]}') };
  const { [signature.header]: _signature, ...headers } = sent.headers;
  return { ...sent, headers };
}
