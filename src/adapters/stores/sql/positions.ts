/** Positions of a table are decimal numbers of any length. */

export function lower(a: string, b: string): string {
  return BigInt(a) < BigInt(b) ? a : b;
}

export function higher(a: string, b: string): string {
  return BigInt(a) > BigInt(b) ? a : b;
}
