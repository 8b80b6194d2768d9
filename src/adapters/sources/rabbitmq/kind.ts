import { sourceKind } from "../../../ports/kinds.ts";
import { checkAmqpUri } from "../../brokers/rabbitmq/uri.ts";
import { rabbitmqSourceSchema } from "./schema.ts";

/** A RabbitMQ source (spec, "AMQP source"). */
export const rabbitmqSource = sourceKind({
  schema: rabbitmqSourceSchema,
  check: ({ connectionUrl }, when) =>
    when(["connectionUrl"], (report) => checkAmqpUri("connectionUrl", connectionUrl, report)),
  attributes: { idempotencyKey: [{ property: "messageId", text: "AMQP property messageId" }], aggregateId: [] },
  create: async (config, tools) => (await import("./index.ts")).createRabbitmqSource(config, tools),
});
