import {
  type AttributeInput,
  type AttributePlan,
  type Extraction,
  findAttributes,
  usableAttributes,
} from "../../src/core/receipt/attributes.ts";

/** What becomes of a message without expressions: its attributes as stored, or why it cannot be accepted. */
export function extractAttributes(plan: AttributePlan, input: AttributeInput): Extraction {
  const found = findAttributes(plan, input);
  return usableAttributes(found, found.noKeyReason);
}
