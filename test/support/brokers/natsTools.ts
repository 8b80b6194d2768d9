import { connect } from "nats";
import type { NatsAddress } from "./types.ts";

/** Makes a JetStream stream, kept in files, of all messages to some subjects. */
export async function natsStream(
  server: NatsAddress,
  stream: { readonly stream: string; readonly subjects: readonly string[] },
): Promise<void> {
  const client = await connect({ servers: server.url });
  try {
    const manager = await client.jetstreamManager();
    await manager.streams.add({ name: stream.stream, subjects: [...stream.subjects] });
  } finally {
    await client.close();
  }
}
