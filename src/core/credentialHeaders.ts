/**
 * Headers that carry credentials. The received headers of an HTTP source are stored and travel on to its receivers; what
 * only proves to this service who the sender is must not (spec, "POST <inbox.basePath><path>").
 */
const CREDENTIAL_HEADERS = [
  "authorization",
  "proxy-authorization",
  "cookie",
  "set-cookie",
  "x-api-key",
  "api-key",
  "apikey",
  "x-apikey",
  "x-auth-token",
  "x-access-token",
  "x-amz-security-token",
  "x-csrf-token",
  "x-xsrf-token",
  "x-functions-key",
  "x-goog-api-key",
  "x-forwarded-access-token",
  "ocp-apim-subscription-key",
] as const;

/**
 * The headers of an HTTP source that are neither stored nor shown to a transform.
 *
 * @param own header names of the source's own `auth` block (API key, HMAC signature), in any letter case
 * @returns the names in lower case
 */
export function credentialHeaders(own: readonly string[] = []): ReadonlySet<string> {
  return new Set([...CREDENTIAL_HEADERS, ...own.map((name) => name.toLowerCase())]);
}
