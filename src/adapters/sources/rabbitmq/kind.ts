import { sourceKind } from "../../../ports/kinds.ts";
import { checkAmqpUri } from "../../brokers/rabbitmq/uri.ts";
import { rabbitmqSourceSchema } from "./schema.ts";

/** A RabbitMQ source (spec, "AMQP source"). */
export const rabbitmqSource = sourceKind({
  schema: rabbitmqSourceSchema,
  check: ({ connectionUrl }, when) =>
    when(["connectionUrl"], (report) => checkAmqpUri("connectionUrl", connectionUrl, report)),
  attributes: { idempotencyKey: [{ property: "messageId", text: "AMQP property messageId" }], aggregateId: [] },
  async create(config, tools) {
    const { createRabbitmqSource } = await import("./index.ts");
    return createRabbitmqSource(config, tools);
  },
});
