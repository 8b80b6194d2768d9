/** What an HTTP destination has without a configuration of its own. */
export const HTTP_DEFAULTS = {
  path: "/",
  method: "POST",
  timeoutMs: 10_000,
  successStatuses: [],
  deadStatuses: [],
  allowMetadataAddress: false,
} as const;
