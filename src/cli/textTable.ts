/** The columns of a table for people: title and cell of each, in order. */
export type Columns<T> = readonly (readonly [title: string, cell: (row: T) => string])[];

/** Aligns cells in columns, for a terminal. @returns a line for the titles and one for each row; nothing without rows */
export function textTable<T>(rows: readonly T[], columns: Columns<T>): string {
  if (rows.length === 0) return "";
  const lines = [columns.map(([title]) => title), ...rows.map((row) => columns.map(([, cell]) => cell(row)))];
  const widths = columns.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  const aligned = lines.map((line) => line.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("  "));
  return aligned.map((line) => `${line.trimEnd()}\n`).join("");
}

/** On one line and without control characters, which would reach the terminal: the texts are whatever applications and receivers wrote. */
export function plainText(text: string, width: number): string {
  const characters = [...text.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, " ")];
  return characters.length > width ? `${characters.slice(0, width - 1).join("")}…` : characters.join("");
}
