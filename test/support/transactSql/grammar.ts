import { CharStreams, CommonTokenStream, type ParserRuleContext, type Token } from "antlr4ts";
import { PredictionMode } from "antlr4ts/atn/PredictionMode.js";
import type { ParseTree } from "antlr4ts/tree/ParseTree.js";
import { TSqlLexer } from "antlr4ts-sql/dist/src/grammar-output/tsql/TSqlLexer.js";
import { TSqlParser } from "antlr4ts-sql/dist/src/grammar-output/tsql/TSqlParser.js";

/** A batch of T-SQL that the grammar takes, as a tree. */
export interface Batch {
  readonly tree: ParserRuleContext;
  /** All that counts, in order: no comments, no white space. */
  readonly tokens: readonly Token[];
}

/**
 * Parses a batch of T-SQL by the grammar of the ANTLR project.
 *
 * @param text what would go to the server in one request
 * @throws Error with line, column and reason of the first fault
 */
export function parseByGrammar(text: string): Batch {
  const stream = streamOf(text.replaceAll(UNKNOWN, (words) => " ".repeat(words.length)));
  const parser = new TSqlParser(stream);
  parser.removeErrorListeners();
  parser.addErrorListener(FIRST_FAULT);
  // Ten times as fast as the full mode. Whatever it takes is right; it might refuse a statement that only the full mode can tell from another.
  parser.interpreter.setPredictionMode(PredictionMode.SLL);
  const tree = parser.tsql_file();
  return { tree, tokens: counted(stream) };
}

/** The server takes the collation of a column of `OPENJSON ... WITH` (dotnet/efcore#32147), and a constraint for new rows only; the grammar knows neither. */
const UNKNOWN = /COLLATE \w+(?= '\$)|(?<=ALTER TABLE \w+ )WITH NOCHECK(?= ADD CONSTRAINT)/g;

/** All that counts in a text, as {@link Batch.tokens}, whether or not it is T-SQL. */
export function tokensOf(text: string): readonly Token[] {
  const stream = streamOf(text);
  stream.fill();
  return counted(stream);
}

const counted = (stream: CommonTokenStream) => stream.getTokens().filter(({ channel }) => channel === 0);

function streamOf(text: string): CommonTokenStream {
  const lexer = new TSqlLexer(inCapitals(text));
  lexer.removeErrorListeners();
  lexer.addErrorListener(FIRST_FAULT);
  return new CommonTokenStream(lexer);
}

const FIRST_FAULT = {
  syntaxError(_: unknown, __: unknown, line: number, column: number, message: string): never {
    // Messages hold every word that could stand there, or all the text from the beginning of the statement.
    const short = message.replace(/ expecting \{.*/s, "").replace(/(at input ').{60,}(.{40}')$/s, "$1...$2");
    throw new Error(`${line}:${column} ${short}`);
  },
};

/** The grammar's keywords are in capitals; the text of the tokens stays unchanged. */
function inCapitals(text: string) {
  const stream = CharStreams.fromString(text);
  const lookAhead = stream.LA.bind(stream);
  stream.LA = (offset) => {
    const code = lookAhead(offset);
    return code >= 97 && code <= 122 ? code - 32 : code;
  };
  return stream;
}

/** All nodes of one kind in a tree, in the order of the text. */
export function nodesOf<T extends ParserRuleContext>(
  tree: ParseTree,
  kind: abstract new (...parameters: never[]) => T,
): readonly T[] {
  const found: T[] = [];
  const visit = (node: ParseTree): void => {
    if (node instanceof kind) found.push(node);
    for (let index = 0; index < node.childCount; index += 1) visit(node.getChild(index));
  };
  visit(tree);
  return found;
}

/** Line and column of a node, for messages. */
export function placeOf({ start }: ParserRuleContext): string {
  return `${start.line}:${start.charPositionInLine}`;
}
