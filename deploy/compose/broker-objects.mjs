// Makes what the flows of deploy/compose/svc.yml need in the brokers and svc never makes: a queue bound to the exchange, a topic, a stream. Existing
// objects stay unchanged, so it may run at every start. In production the owner of the brokers makes them.
//
// It stands beside the program in the image (/app) and uses its clients. Servers and passwords come from the environment; see deploy/compose.yml.
import { connect as connectRabbitmq } from "amqplib";
import kafkajs from "kafkajs";
import { connect as connectNats } from "nats";

const { RABBITMQ_URL, KAFKA_SERVERS, NATS_URL, NATS_USER, NATS_PASSWORD } = process.env;

/** The exchange must be declared as svc declares it (durable, of type topic), since the queue is bound to it before svc publishes. */
async function makeQueue() {
  const connection = await connectRabbitmq(RABBITMQ_URL);
  try {
    const channel = await connection.createChannel();
    await channel.assertExchange("orders", "topic", { durable: true });
    await channel.assertQueue("orders", { durable: true });
    await channel.bindQueue("orders", "orders", "#");
  } finally {
    await connection.close();
  }
  console.log("RabbitMQ: exchange orders -> queue orders");
}

/** Four partitions: so many replicas of svc can read beside each other. */
async function makeTopic() {
  const client = new kafkajs.Kafka({ brokers: KAFKA_SERVERS.split(","), logLevel: kafkajs.logLevel.NOTHING });
  const admin = client.admin();
  await admin.connect();
  try {
    await admin.createTopics({ topics: [{ topic: "orders", numPartitions: 4 }], waitForLeaders: true });
  } finally {
    await admin.disconnect();
  }
  console.log("Kafka: topic orders");
}

async function makeStream() {
  const connection = await connectNats({ servers: NATS_URL, user: NATS_USER, pass: NATS_PASSWORD });
  try {
    const manager = await connection.jetstreamManager();
    // Making a stream again with the same settings changes nothing.
    await manager.streams.add({ name: "ORDERS", subjects: ["orders.>"] });
  } finally {
    await connection.close();
  }
  console.log("NATS: stream ORDERS of the subjects orders.>");
}

await Promise.all([makeQueue(), makeTopic(), makeStream()]);
