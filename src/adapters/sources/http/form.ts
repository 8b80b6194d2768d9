import { headerText, type SignedRequest } from "./scheme.ts";

/** Bodies of HTML forms, which some providers send. */

/** The most fields of a form; senders have a few dozen. */
const MOST_FIELDS = 1000;
const AMPERSAND = "&".charCodeAt(0);

/** Whether a request says that its body is a form. */
export function isForm(request: Pick<SignedRequest, "headers">): boolean {
  const type = headerText(request, "content-type") ?? "";
  return type.split(";", 1)[0]?.trim().toLowerCase() === "application/x-www-form-urlencoded";
}

/** Reads a form. @returns the different values of each name in order, or why there are none */
export function parseForm(body: Buffer): ReadonlyMap<string, readonly string[]> | string {
  let fields = 1;
  for (let at = body.indexOf(AMPERSAND); at >= 0; at = body.indexOf(AMPERSAND, at + 1)) {
    fields++;
    if (fields > MOST_FIELDS) return `the form has more than ${MOST_FIELDS} fields`;
  }
  const form = new Map<string, string[]>();
  for (const [name, value] of new URLSearchParams(body.toString("utf8"))) {
    const values = form.get(name);
    if (values === undefined) form.set(name, [value]);
    else if (!values.includes(value)) values.push(value);
  }
  return form;
}

/**
 * A form as JSON: a member for each field, a list where a name is repeated.
 *
 * @param jsonField a field that holds the whole message as JSON; its text is then the result, as it came
 * @returns the bytes of the JSON, or why there are none
 */
export function formToJson(body: Buffer, jsonField: string | undefined): Buffer | string {
  const form = parseForm(body);
  if (typeof form === "string") return form;
  const json = jsonField === undefined ? undefined : form.get(jsonField);
  if (json?.length === 1) return Buffer.from(json[0] ?? "", "utf8");
  // Assigning a field `__proto__` would set the prototype; fromEntries defines it.
  const members = [...form].map(([name, values]) => [name, values.length === 1 ? values[0] : values] as const);
  return Buffer.from(JSON.stringify(Object.fromEntries(members)), "utf8");
}
