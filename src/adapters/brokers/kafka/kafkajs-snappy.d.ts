declare module "kafkajs-snappy" {
  /** Makes the codec that `CompressionCodecs` takes. */
  export default function createCodec(): {
    compress(encoder: { readonly buffer: Buffer }): Promise<Buffer>;
    decompress(bytes: Buffer): Promise<Buffer>;
  };
}
