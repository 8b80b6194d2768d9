/**
 * Headers that carry credentials. The received headers of an HTTP source are stored and travel on to its receivers; what
 * proves to this service, or to a proxy in front of it, who the sender is must not (spec, "POST <inbox.basePath><path>").
 *
 * Signatures of a body (`X-Hub-Signature-256`, `Stripe-Signature`) are none: they prove this one body and let nobody in, and a
 * receiver may want to check them again.
 */

/** What the names of credential headers have in common, wherever it stands in the name ... */
const ANYWHERE = /authori[sz]|authentication|secret|passw|passphrase|credential|cookie|jwt|assertion|session/;
/** ... or at its end: `X-Token-Count`, `X-Api-Key-Id` and `X-Auth-User` hold none, `X-Idempotency-Key` is another kind of key. */
const AT_THE_END =
  /(?:token|auth|bearer|[-_]otp|[-_]pass|[-_]pwd|(?:access|account|admin|api|app|application|auth|client|consumer|customer|developer|encryption|functions?|insert|licen[cs]e|master|private|query|root|sas|service|shared|signing|subscription)[-_]?key)$/;
/** Credentials whose names do not tell. */
const OTHERS: ReadonlySet<string> = new Set(["dpop", "x-amzn-oidc-data", "x-gotify-key", "x-honeycomb-team", "x-wsse"]);

/**
 * Whether a header of this name carries a credential by what it is called.
 *
 * @param name in lower case
 */
export function isCredentialHeader(name: string): boolean {
  return ANYWHERE.test(name) || AT_THE_END.test(name) || OTHERS.has(name);
}

/**
 * Which headers of an HTTP source are neither stored nor shown to a transform.
 *
 * @param further names in any letter case: those of the source's own `auth` block, and `inbox.credentialHeaders`
 * @returns tells it by a name in lower case
 */
export function credentialHeaders(further: readonly string[]): (name: string) => boolean {
  const names = new Set(further.map((name) => name.toLowerCase()));
  return (name) => names.has(name) || isCredentialHeader(name);
}
