import { errorText } from "../../../model/errors.ts";
import type { AmqpConnection } from "../../brokers/rabbitmq/connection.ts";

/**
 * Whether a queue is a RabbitMQ stream, for which AMQP 0-9-1 has no question: a consumer is asked for that no broker
 * grants. A stream refuses one without a prefetch count; any other queue refuses the argument `x-stream-offset`. On a
 * channel of its own, which the refusal closes.
 *
 * @returns false also when the broker answers anything else: what is wrong then shows when the queue is consumed
 */
export async function isStream(connection: AmqpConnection, queueName: string): Promise<boolean> {
  try {
    const channel = await connection.createChannel();
    channel.on("error", () => {});
    await channel.prefetch(0);
    await channel.consume(queueName, () => {}, { arguments: { "x-stream-offset": "next" } });
    // A broker that grants it knows no streams. What it has delivered goes back with the channel.
    await channel.close();
    return false;
  } catch (error) {
    return /prefetch count is not set/i.test(errorText(error));
  }
}
