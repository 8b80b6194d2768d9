/** Where a value stands: names of keys and, in lists, indexes from 0. */
export type KeyPath = readonly (string | number)[];

/**
 * Writes a key path as people read it.
 *
 * @param path such as `["routes", 0, "topicPattern"]`
 * @returns such as `routes[0].topicPattern`; a name that would be ambiguous is quoted: `destinations["a.b"].baseUrl`
 */
export function formatKeyPath(path: KeyPath): string {
  let text = "";
  for (const step of path) {
    if (typeof step === "number") text += `[${step}]`;
    else if (/^[\w-]+$/.test(step)) text += text === "" ? step : `.${step}`;
    else text += `[${JSON.stringify(step)}]`;
  }
  return text;
}
