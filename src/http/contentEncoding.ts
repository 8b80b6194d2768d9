import type { Transform } from "node:stream";
import { createBrotliDecompress, createGunzip, createInflate, createInflateRaw } from "node:zlib";
import { type BodyLimits, type BodyResult, GatheredBody } from "./body.ts";

/** The encodings of request bodies that are read, for the answer to others (RFC 9110, section 15.5.16). */
export const ACCEPTED_ENCODINGS = "gzip, deflate, br";

/** Makes the stream that undoes an encoding of this body. */
export type Decoder = (body: Buffer) => Transform;

const DECODERS: ReadonlyMap<string, Decoder> = new Map(
  Object.entries({
    gzip: () => createGunzip(),
    "x-gzip": () => createGunzip(),
    // The name means zlib; many senders leave out its frame, whose first byte says "deflate" in four bits.
    deflate: (body) => (((body[0] ?? 0) & 0x0f) === 8 ? createInflate() : createInflateRaw()),
    br: () => createBrotliDecompress(),
  } satisfies Readonly<Record<string, Decoder>>),
);

/**
 * What undoes a `Content-Encoding`.
 *
 * @returns null for a body sent as it is; undefined for an encoding, or several, that are not read here
 */
export function decoderOf(contentEncoding: string | undefined): Decoder | null | undefined {
  if (contentEncoding === undefined) return null;
  const name = contentEncoding.trim().toLowerCase();
  return name === "" || name === "identity" ? null : DECODERS.get(name);
}

/**
 * Decodes a body, within the same cap and the same budget as the bytes that were sent.
 *
 * @returns `undecodable` when the bytes are not what their encoding says; never rejects
 */
export function decodeBody(
  body: Buffer,
  decoder: Decoder,
  { maxBytes, budget }: BodyLimits,
): Promise<Exclude<BodyResult, { kind: "aborted" }> | { readonly kind: "undecodable" }> {
  return new Promise((resolve) => {
    const decoded = new GatheredBody(maxBytes, budget, () => finish({ kind: "overloaded" }));
    const stream = decoder(body);
    function finish(result: Awaited<ReturnType<typeof decodeBody>>): void {
      stream.destroy();
      decoded.release();
      resolve(result);
    }
    stream.on("data", (chunk: Buffer) => {
      if (decoded.length + chunk.length > maxBytes) finish({ kind: "too_large" });
      else if (!decoded.add(chunk)) finish({ kind: "overloaded" });
    });
    stream.on("end", () => finish({ kind: "read", body: decoded.bytes() }));
    stream.on("error", () => finish({ kind: "undecodable" }));
    stream.end(body);
  });
}
