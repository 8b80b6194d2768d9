import { sourceKindOf } from "../src/adapters/kinds.ts";
import type { SourceConfig } from "../src/config/types.ts";
import { type AttributePlan, brokerPlan, httpPlan } from "../src/core/receipt/attributes.ts";

/** The places of the attributes of a source's messages, in the order of its kind. */
export function attributePlanOf(settings: SourceConfig): AttributePlan {
  return settings.kind === "http" ? httpPlan(settings) : brokerPlan(settings, sourceKindOf(settings).attributes);
}
