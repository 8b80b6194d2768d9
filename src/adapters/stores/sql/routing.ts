import { NO_DESTINATION } from "../../../ports/store.ts";

/**
 * Destinations in SQL: an expression for the destination of a row. Its override wins; else the first route that matches
 * its topic. An override that names no destination, a topic without a route, or no topic, gives {@link NO_DESTINATION}.
 */

/** What decides where rows go. */
export interface Routing {
  /** In order of precedence. */
  readonly routes: readonly TopicRoute[];
  /** The names of all destinations, also of those without a route. */
  readonly destinations: readonly string[];
}

export const NO_ROUTING: Routing = { routes: [], destinations: [] };

/** The parts of a route that a store needs. */
export interface TopicRoute {
  readonly topicPattern: string;
  readonly destination: string;
}

export type PatternPart =
  | { readonly kind: "text"; readonly text: string }
  /** `*`: one or more characters other than a dot. */
  | { readonly kind: "segment" }
  /** `**`: any text, also none. */
  | { readonly kind: "any" };

/** How a database tests a topic. */
export interface RoutingDialect {
  /** @returns a text literal that means the same under any setting of the session */
  literal(text: string): string;
  /**
   * @param topic an expression, never NULL where the test counts
   * @returns a condition, and whether it holds for the topics of the pattern alone; if not, it holds for them and some
   *   others
   */
  test(topic: string, parts: readonly PatternPart[]): { readonly condition: string; readonly isExact: boolean };
}

/**
 * @param topic an expression that compares letter for letter
 * @param override the same for the row's override; null where the table has no column for it
 * @returns an expression for the name of the destination. Where a test is not exact, the row counts as one without a
 *   destination.
 */
export function destinationExpression(
  { routes, destinations }: Routing,
  topic: string,
  override: string | null,
  dialect: RoutingDialect,
): string {
  const byTopic = firstMatch(
    routes.map(({ topicPattern, destination }) => ({ parts: partsOf(topicPattern), destination })),
    topic,
    dialect,
  );
  if (override === null) return byTopic;
  const names = destinations.filter(isStorable);
  const byName = firstMatch(
    names.map((name) => ({ parts: [{ kind: "text", text: name }], destination: name })),
    override,
    dialect,
  );
  return `CASE WHEN ${override} IS NULL THEN ${byTopic} ELSE ${byName} END`;
}

function firstMatch(
  cases: readonly { readonly parts: readonly PatternPart[]; readonly destination: string }[],
  text: string,
  dialect: RoutingDialect,
): string {
  const whens = cases.map(({ parts, destination }) => {
    const { condition, isExact } = dialect.test(text, parts);
    const isKnown = isExact && parts.every((part) => part.kind !== "text" || isStorable(part.text));
    return `WHEN ${condition} THEN ${dialect.literal(isKnown ? destination : NO_DESTINATION)}`;
  });
  const none = dialect.literal(NO_DESTINATION);
  return whens.length === 0 ? none : `CASE ${whens.join(" ")} ELSE ${none} END`;
}

function partsOf(pattern: string): readonly PatternPart[] {
  return (pattern.match(/\*\*|\*|[^*]+/gs) ?? []).map((part): PatternPart => {
    if (part === "**") return { kind: "any" };
    return part === "*" ? { kind: "segment" } : { kind: "text", text: part };
  });
}

/** Half of a surrogate pair, and NUL, are in no text that a database could compare with. */
export function isStorable(text: string): boolean {
  return !/\0|\p{Surrogate}/u.test(text);
}

/** A LIKE pattern for the topics of the pattern; exact without `*`. @param escaped escapes LIKE's characters */
export function likePattern(parts: readonly PatternPart[], escaped: (text: string) => string): string {
  return parts
    .map((part) => {
      if (part.kind === "text") return isStorable(part.text) ? escaped(part.text) : "%";
      return part.kind === "any" ? "%" : "_%";
    })
    .join("");
}

/** Dots of a pattern. Without `**` a topic matches if it matches the {@link likePattern} and has as many dots. */
export function dotsIn(parts: readonly PatternPart[]): number {
  return parts.reduce((dots, part) => dots + (part.kind === "text" ? part.text.split(".").length - 1 : 0), 0);
}

export const hasAny = (parts: readonly PatternPart[]): boolean => parts.some(({ kind }) => kind === "any");
export const hasSegment = (parts: readonly PatternPart[]): boolean => parts.some(({ kind }) => kind === "segment");
