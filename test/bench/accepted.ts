import type { Program } from "./environment.ts";

/**
 * Lets `sender.js` send.
 *
 * @param ms how long
 * @returns the number of messages that were accepted
 * @throws Error when any was refused
 */
export async function acceptedIn(sender: Program, ms: number): Promise<number> {
  sender.tell(String(ms));
  const [accepted = 0, refused = 0] = (await sender.line()).split(" ").map(Number);
  if (refused > 0) throw new Error(`${refused} messages were refused`);
  return accepted;
}
