import { type ConfirmChannel, connect } from "amqplib";

/** Does something on a channel with confirms, on a connection of its own. */
export async function withChannel<T>(url: string, work: (channel: ConfirmChannel) => Promise<T>): Promise<T> {
  // A broker that stops may accept a connection and never answer on it.
  const connection = await connect(`${url}?heartbeat=5`, { timeout: 5000 });
  // Its end makes the work reject, which is enough.
  connection.on("error", () => {});
  try {
    const channel = await connection.createConfirmChannel();
    channel.on("error", () => {});
    const result = await work(channel);
    // The connection's close would overtake what the channel has still to send.
    await channel.close();
    return result;
  } finally {
    await connection.close().catch(() => {});
  }
}
