import { parse } from "@babel/parser";

/**
 * Past forms and participles that leave out what they are about: a class that `saw`, or has `held`. A member is named by its
 * noun (`heldRows`), by its object (`sawRow`), or as a state of its class (`isClosed`).
 */
const BARE = new Set(
  (
    "apart began begun bound brought chosen cut found gave given got held judged kept known left looked lost made meant met " +
    "noted read saw searched seen sent spent taken told took tried used won written wrote"
  ).split(" "),
);
const MEMBERS = new Set([
  "ClassAccessorProperty",
  "ClassMethod",
  "ClassPrivateMethod",
  "ClassPrivateProperty",
  "ClassProperty",
  "TSDeclareMethod",
]);
/** Infinitives, too. */
const ALSO_VERBS = new Set(["cut", "read"]);

/** @returns the members of classes in a script that are named by a bare verb or participle, as `{ line, column, message }` */
export function bareMembersIn(text) {
  const { program } = parse(text, { sourceType: "module", plugins: ["typescript", "jsx"], errorRecovery: true });
  const found = [];
  const visit = (node) => {
    if (Array.isArray(node)) return void node.forEach(visit);
    if (typeof node?.type !== "string") return;
    if (MEMBERS.has(node.type)) {
      const { name } = node.key.id ?? node.key;
      if (BARE.has(name) && !(ALSO_VERBS.has(name) && /Method$/.test(node.type))) {
        const { line, column } = node.key.loc.start;
        found.push({ line, column: column + 1, message: `"${name}": name its object, as in "${name}Rows"` });
      }
    }
    for (const [key, value] of Object.entries(node)) if (key !== "loc" && typeof value === "object") visit(value);
  };
  visit(program.body);
  return found;
}
