import { text } from "../../model/schema.ts";
import { ADDRESS_COLUMNS, type Report } from "../../ports/kinds.ts";

/** The address of a destination: a template. @param name what is addressed: `Topic` */
export const addressTemplate = (name: string) => text(`${name} name.`, { syntax: "address" });

/** The row column instead of the template. @param key key of the template */
export const addressColumn = (key: string) => text(`Row column instead of \`${key}\`.`, { enum: ADDRESS_COLUMNS });

/**
 * Checks every entry of a comma-separated list of servers. Errors name its position only, since it may hold a password.
 *
 * @param form matches one entry, with the port as its last group
 * @param expected the form in words
 */
export function checkServers(key: string, list: string, form: RegExp, expected: string, report: Report): void {
  const entries = list.split(",").map((entry) => entry.trim());
  entries.forEach((entry, index) => {
    const port = Number(form.exec(entry)?.at(-1) ?? 1);
    if (form.test(entry) && port >= 1 && port <= 65_535) return;
    // A trailing comma is common and harmless.
    if (entry === "" && entries.length > 1) return;
    report.error(key, `entry ${index + 1} of the list is not a server: expected ${expected}`);
  });
}
