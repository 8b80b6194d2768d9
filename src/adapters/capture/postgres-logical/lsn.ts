/** Positions in the write-ahead log, in bytes (PostgreSQL documentation, "pg_lsn Type"). */

/**
 * @param text such as `16/B374D848`
 * @returns undefined for anything else
 */
export function parseLsn(text: string): bigint | undefined {
  const match = /^([0-9A-F]{1,8})\/([0-9A-F]{1,8})$/i.exec(text);
  return match === null ? undefined : (BigInt(`0x${match[1]}`) << 32n) | BigInt(`0x${match[2]}`);
}

export function formatLsn(lsn: bigint): string {
  const half = (bits: bigint) => bits.toString(16).toUpperCase();
  return `${half(lsn >> 32n)}/${half(lsn & 0xffff_ffffn)}`;
}
