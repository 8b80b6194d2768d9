import { decompress as decompressZstd } from "fzstd";
import kafkajs from "kafkajs";
import snappy from "kafkajs-snappy";
import { decompressFrame } from "lz4-napi";

/** Makes the client read every compression of the protocol; gzip it knows itself. Nothing is sent compressed. */
export function registerCodecs(): void {
  const { CompressionCodecs, CompressionTypes } = kafkajs;
  CompressionCodecs[CompressionTypes.Snappy] = snappy;
  CompressionCodecs[CompressionTypes.LZ4] = () => readingOnly("lz4", (bytes) => decompressFrame(bytes));
  CompressionCodecs[CompressionTypes.ZSTD] = () =>
    readingOnly("zstd", async (bytes) => {
      const plain = decompressZstd(bytes);
      return Buffer.from(plain.buffer, plain.byteOffset, plain.byteLength);
    });
}

function readingOnly(name: string, decompress: (bytes: Buffer) => Promise<Buffer>) {
  return {
    decompress,
    async compress(): Promise<Buffer> {
      throw new Error(`records are not compressed with ${name}: only reading is supported`);
    },
  };
}
