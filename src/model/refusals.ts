const BY_STATUS = {
  400: "invalid",
  401: "credentials",
  403: "handshake",
  405: "method",
  413: "too_large",
  415: "encoding",
  422: "transform",
  429: "rate_limited",
  500: "storage",
  503: "unavailable",
} as const;

/** Why the sender of an HTTP source is refused: the status of its answer in a word. */
export type Refusal = (typeof BY_STATUS)[keyof typeof BY_STATUS] | "other";
export const REFUSALS: readonly Refusal[] = [...Object.values(BY_STATUS), "other"];

/** @param status of an answer, 400 or more */
export function refusalOf(status: number): Refusal {
  return (BY_STATUS as Readonly<Record<number, Refusal>>)[status] ?? "other";
}
