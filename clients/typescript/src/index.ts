export * from "./adapters.ts";
export { createOutbox, enqueue, enqueueMany, type Outbox, type OutboxOptions, type Transaction } from "./enqueue.ts";
export { type HttpSourceOptions, httpSource } from "./httpSource.ts";
export { cellOf, EnqueueError, type EnqueueErrorCode, type Message } from "./message.ts";
export { forget, once, onceTable, onceTableSqlServer } from "./once.ts";
export { type SqlClient, type SqlPool, type SqlSourceOptions, sqlSource } from "./sqlSource.ts";
export * from "./worker.ts";
