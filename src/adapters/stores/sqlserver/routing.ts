import {
  destinationExpression,
  dotsIn,
  hasAny,
  hasSegment,
  likePattern,
  type RoutingDialect,
  type TopicRoute,
} from "../sql/routing.ts";

/**
 * @param topic a column of any text type
 * @returns an expression for the destination of its rows. Patterns with both `*` and `**` are beyond LIKE: their rows have no destination here.
 */
export function destinationOf(routes: readonly TopicRoute[], topic: string): string {
  const text = `CONVERT(nvarchar(max), ${topic}) COLLATE ${LETTER_FOR_LETTER}`;
  return `${destinationExpression(routes, text, SQL_SERVER)} COLLATE ${LETTER_FOR_LETTER}`;
}

/** A collation under which texts are the same when their characters are. */
export const LETTER_FOR_LETTER = "Latin1_General_100_BIN2";

const literal = (text: string): string => `N'${text.replaceAll("'", "''")}'`;

/** LIKE, unlike `=`, counts spaces at the end of a text. */
const SQL_SERVER: RoutingDialect = {
  literal,
  test(topic, parts) {
    const pattern = likePattern(parts, (text) => text.replace(/[\\%_[\]]/g, "\\$&"));
    const like = `${topic} LIKE ${literal(pattern)} ESCAPE N'\\'`;
    if (!hasSegment(parts)) return { condition: like, isExact: true };
    if (hasAny(parts)) return { condition: like, isExact: false };
    const dots = `DATALENGTH(${topic}) - DATALENGTH(REPLACE(${topic}, N'.', N'')) = ${BYTES_OF_A_DOT * dotsIn(parts)}`;
    return { condition: `${like} AND ${dots}`, isExact: true };
  },
};

/** Of `nvarchar`. */
const BYTES_OF_A_DOT = 2;
