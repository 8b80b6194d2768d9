import { promisify } from "node:util";
import { brotliDecompress, gunzip, inflate, inflateRaw } from "node:zlib";
import type { BodyLimits, BodyResult } from "./body.ts";

/** The encodings of request bodies that are read, for the answer to others (RFC 9110, section 15.5.16). */
export const ACCEPTED_ENCODINGS = "gzip, deflate, br";

export type Decode = (body: Buffer, options: { readonly maxOutputLength: number }) => Promise<Buffer>;

const unzip = promisify(gunzip) as Decode;
const unzipZlib = promisify(inflate) as Decode;
const unzipRaw = promisify(inflateRaw) as Decode;

const DECODERS: ReadonlyMap<string, Decode> = new Map(
  Object.entries({
    gzip: unzip,
    "x-gzip": unzip,
    // The name means zlib; many senders leave out its frame, whose first byte says "deflate" in four bits.
    deflate: (body, options) => (((body[0] ?? 0) & 0x0f) === 8 ? unzipZlib : unzipRaw)(body, options),
    br: promisify(brotliDecompress) as Decode,
  } satisfies Readonly<Record<string, Decode>>),
);

/**
 * What undoes a `Content-Encoding`.
 *
 * @returns null for a body sent as it is; undefined for an encoding, or several, that are not read here
 */
export function decoderOf(contentEncoding: string | undefined): Decode | null | undefined {
  if (contentEncoding === undefined) return null;
  const name = contentEncoding.trim().toLowerCase();
  return name === "" || name === "identity" ? null : DECODERS.get(name);
}

/**
 * Decodes a body, within the same cap as the bytes that were sent.
 *
 * @returns `undecodable` when the bytes are not what their encoding says
 */
export async function decodeBody(
  body: Buffer,
  decode: Decode,
  { maxBytes, budget }: BodyLimits,
): Promise<Exclude<BodyResult, { kind: "aborted" }> | { readonly kind: "undecodable" }> {
  const holder = { giveUp: null };
  // How much comes out is known when it has.
  if (!budget.hold(holder, maxBytes)) return { kind: "overloaded" };
  try {
    return { kind: "read", body: await decode(body, { maxOutputLength: maxBytes }) };
  } catch (error) {
    return { kind: (error as NodeJS.ErrnoException).code === "ERR_BUFFER_TOO_LARGE" ? "too_large" : "undecodable" };
  } finally {
    budget.release(holder);
  }
}
