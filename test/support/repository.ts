import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** The folder of the repository, with a slash at its end. */
export const ROOT = fileURLToPath(new URL("../../", import.meta.url));

/** The path of a file of the repository. */
export const pathOf = (file: string): string => `${ROOT}${file}`;

/** The text of a file of the repository. */
export const read = (file: string): string => readFileSync(pathOf(file), "utf8");
