import pg from "pg";
import {
  destinationExpression,
  dotsIn,
  hasAny,
  hasSegment,
  isStorable,
  likePattern,
  type PatternPart,
  type RoutingDialect,
  type TopicRoute,
} from "../sql/routing.ts";

/** @param topic a column of any type. @returns an expression for the destination of its rows; exact for every pattern */
export function destinationOf(routes: readonly TopicRoute[], topic: string): string {
  return destinationExpression(routes, `(${topic}::text COLLATE "C")`, POSTGRES);
}

const literal = (text: string): string => pg.escapeLiteral(text).trim();

/** Cheap tests where they do: some thousand rows may be asked in a claim. */
const POSTGRES: RoutingDialect = {
  literal,
  test(topic, parts) {
    return { condition: conditionOf(topic, parts), isExact: true };
  },
};

function conditionOf(topic: string, parts: readonly PatternPart[]): string {
  const [first, second] = parts;
  const isExpressible = parts.every((part) => part.kind !== "text" || isStorable(part.text));
  if (first === undefined) return `${topic} = ''`;
  if (isExpressible && first.kind === "text" && second === undefined) return `${topic} = ${literal(first.text)}`;
  if (first.kind === "any" && second === undefined) return `${topic} IS NOT NULL`;
  if (isExpressible && first.kind === "text" && second?.kind === "any" && parts.length === 2) {
    return `starts_with(${topic}, ${literal(first.text)})`;
  }
  const like = `${topic} LIKE ${literal(likePattern(parts, (text) => text.replace(/[\\%_]/g, "\\$&")))}`;
  if (!hasSegment(parts) || !isExpressible) return like;
  if (!hasAny(parts)) return `${like} AND length(${topic}) - length(replace(${topic}, '.', '')) = ${dotsIn(parts)}`;
  return `${like} AND ${topic} ~ ${literal(`^${parts.map(regularExpressionOf).join("")}$`)}`;
}

/** By default `.` and brackets match line breaks too, and `$` the end of the text alone. */
function regularExpressionOf(part: PatternPart): string {
  if (part.kind === "text")
    return part.text.replace(/[^\p{L}\p{N}\s]/gu, (character) =>
      character.charCodeAt(0) < 128 ? `\\${character}` : character,
    );
  return part.kind === "any" ? ".*" : "[^.]+";
}
