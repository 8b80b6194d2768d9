import { errorText } from "../../../model/errors.ts";
import { readProperties } from "./properties.ts";

/** A message whose properties cannot be read has this in their place. */
export interface UndecodableProperties {
  readonly undecodable: { readonly reason: string; readonly bytes: Buffer };
}

/** How amqplib 2.3 reads frames: each call gives the next one; `rest` begins with it once it has arrived completely. */
interface FrameReader {
  rest: Buffer;
  recvFrame(): unknown;
}

/** Frame type, channel and size before the payload, one byte behind it (AMQP 0-9-1, section 4.2.3). */
const PREFIX_BYTES = 7;
const HEADER_FRAME = 2;
const FRAME_END = 0xce;
/** Class, weight and body size before the properties. */
const HEADER_PREFIX_BYTES = 12;

/**
 * Reads the properties of messages in place of the client library. What the library cannot read (tables in thousands of
 * tables, an unknown type) it takes for a fault of the connection: the broker would deliver the message again on each
 * next one, for ever. Here such a message arrives with {@link UndecodableProperties}. A library that is built
 * differently stays as it is.
 *
 * @param connection the library's
 */
export function readContentHeaders(connection: unknown): void {
  const reader = connection as FrameReader;
  const { recvFrame } = reader;
  if (typeof recvFrame !== "function" || !Buffer.isBuffer(reader.rest)) return;
  reader.recvFrame = () => {
    const { rest } = reader;
    if (rest.length <= PREFIX_BYTES || rest[0] !== HEADER_FRAME) return recvFrame.call(reader);
    const end = PREFIX_BYTES + rest.readUInt32BE(3);
    // What has not arrived, or is not a frame, is the library's.
    if (rest[end] !== FRAME_END || end - PREFIX_BYTES < HEADER_PREFIX_BYTES) return recvFrame.call(reader);
    reader.rest = rest.subarray(end + 1);
    const payload = rest.subarray(PREFIX_BYTES, end);
    return {
      id: payload.readUInt16BE(0),
      channel: rest.readUInt16BE(1),
      size: Number(payload.readBigUInt64BE(4)),
      fields: propertiesOf(payload.subarray(HEADER_PREFIX_BYTES)),
    };
  };
}

function propertiesOf(bytes: Buffer): object {
  try {
    return readProperties(bytes);
  } catch (error) {
    return { undecodable: { reason: errorText(error), bytes } } satisfies UndecodableProperties;
  }
}
