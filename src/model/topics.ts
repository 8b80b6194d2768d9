/** What the relay makes of received messages, whichever database it runs on. */

/** That of ASCII: what else counts as white space differs between databases, and with their collations. */
export const WHITE_SPACE = " \t\n\v\f\r";

/**
 * The topic of a received message, without {@link WHITE_SPACE} around it; may be empty.
 *
 * @param pieces the source's topic template around each `{{ eventType }}`
 * @param eventType null counts as an empty text
 */
export function renderTopic(pieces: readonly string[], eventType: string | null): string {
  const topic = pieces.join(eventType ?? "");
  let [start, end] = [0, topic.length];
  while (start < end && WHITE_SPACE.includes(topic.charAt(start))) start += 1;
  while (start < end && WHITE_SPACE.includes(topic.charAt(end - 1))) end -= 1;
  return topic.slice(start, end);
}

interface TopicRules {
  readonly topics: Readonly<Record<string, readonly string[]>>;
  readonly routing?: { readonly listOf?: ((topic: string) => readonly string[] | undefined) | undefined } | undefined;
  readonly mayExpand?: ((topic: string) => boolean) | undefined;
}

/** The list of a received message's route; undefined without one; empty if the receipt may not expand the message. */
export function listOfMessage(
  { source, eventType }: { readonly source: string; readonly eventType: string | null },
  { topics, routing, mayExpand }: TopicRules,
): readonly string[] | undefined {
  if (routing?.listOf === undefined) return undefined;
  const topic = renderTopic(topics[source] ?? [], eventType);
  const list = routing.listOf(topic);
  return list === undefined || mayExpand?.(topic) === true ? list : [];
}
