/** How a destination is doing, the first that holds: an operator paused it; its breaker is open, or has a probe under way; deliveries hang, crawl or fail. */
export const DESTINATION_STATES = ["paused", "open", "half-open", "slow", "ok"] as const;
export type DestinationState = (typeof DESTINATION_STATES)[number];

/** @param is what holds of a destination */
export function destinationState(is: Readonly<Record<Exclude<DestinationState, "ok">, boolean>>): DestinationState {
  return DESTINATION_STATES.find((state) => state !== "ok" && is[state]) ?? "ok";
}
