import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { expect } from "@jest/globals";
import { eventually } from "./eventually.ts";

/** A span as a collector got it. */
export interface ReceivedSpan {
  readonly name: string;
  readonly kind: string;
  readonly traceId: string;
  readonly spanId: string;
  /** Empty without a parent. */
  readonly parentSpanId: string;
  readonly links: readonly { readonly traceId: string; readonly spanId: string }[];
  readonly attributes: Readonly<Record<string, unknown>>;
  readonly isError: boolean;
  /** Of the process that sent it. */
  readonly resource: Readonly<Record<string, unknown>>;
  readonly schemaUrl: string;
}

interface Value {
  readonly stringValue?: string;
  readonly intValue?: number;
  readonly doubleValue?: number;
  readonly boolValue?: boolean;
}

interface Attribute {
  readonly key: string;
  readonly value: Value;
}

/** `ExportTraceServiceRequest` of the published definitions. */
interface ExportRequest {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: readonly Attribute[] };
    readonly scopeSpans: readonly {
      readonly schemaUrl: string;
      readonly spans: readonly {
        readonly name: string;
        readonly kind: number;
        readonly traceId: Uint8Array;
        readonly spanId: Uint8Array;
        readonly parentSpanId?: Uint8Array;
        readonly links: readonly { readonly traceId: Uint8Array; readonly spanId: Uint8Array }[];
        readonly attributes: readonly Attribute[];
        readonly status?: { readonly code: number };
      }[];
    }[];
  }[];
}

const load = createRequire(import.meta.url);
const definitions = load("otlp-definitions/build/src/generated/root.js") as {
  opentelemetry: {
    proto: { collector: { trace: { v1: { ExportTraceServiceRequest: { decode(bytes: Buffer): ExportRequest } } } } };
  };
};
const { ExportTraceServiceRequest } = definitions.opentelemetry.proto.collector.trace.v1;

const KINDS = ["unspecified", "internal", "server", "client", "producer", "consumer"];
const ERROR = 2;

/** A collector that takes OTLP/HTTP: spans in protobuf and metrics in JSON. */
export class Collector {
  readonly spans: ReceivedSpan[] = [];
  readonly metrics: object[] = [];
  /** Replaces the answer; an answer that never comes is a collector that hangs. */
  answer: (response: ServerResponse) => void = (response) => void response.writeHead(200).end();
  readonly #server = createServer((request, response) => void this.#take(request, response));

  static async start(): Promise<Collector> {
    const collector = new Collector();
    await new Promise<void>((resolve) => collector.#server.listen(0, "127.0.0.1", resolve));
    return collector;
  }

  /** The variables of a process that sends its spans here. */
  get env(): Readonly<Record<string, string>> {
    const { port } = this.#server.address() as AddressInfo;
    return { OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}` };
  }

  /** The spans once they satisfy `check`, which throws until then. */
  async until(check: (spans: readonly ReceivedSpan[]) => void): Promise<readonly ReceivedSpan[]> {
    await eventually(async () => check(this.spans));
    return this.spans;
  }

  /** The spans of a name, once there are as many. */
  async named(name: string, count = 1): Promise<readonly ReceivedSpan[]> {
    const found = () => this.spans.filter((span) => span.name === name);
    await eventually(async () => expect(found().length).toBeGreaterThanOrEqual(count));
    return found();
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks);
    if (request.url === "/v1/metrics") this.metrics.push(JSON.parse(body.toString()) as object);
    else this.spans.push(...spansOf(ExportTraceServiceRequest.decode(body)));
    this.answer(response);
  }
}

function spansOf({ resourceSpans }: ExportRequest): readonly ReceivedSpan[] {
  return resourceSpans.flatMap(({ resource, scopeSpans }) =>
    scopeSpans.flatMap(({ schemaUrl, spans }) =>
      spans.map((span) => ({
        name: span.name,
        kind: KINDS[span.kind] ?? String(span.kind),
        traceId: hex(span.traceId),
        spanId: hex(span.spanId),
        parentSpanId: hex(span.parentSpanId),
        links: span.links.map(({ traceId, spanId }) => ({ traceId: hex(traceId), spanId: hex(spanId) })),
        attributes: valuesOf(span.attributes),
        isError: span.status?.code === ERROR,
        resource: valuesOf(resource.attributes),
        schemaUrl,
      })),
    ),
  );
}

const hex = (bytes: Uint8Array | null | undefined): string => Buffer.from(bytes ?? []).toString("hex");

function valuesOf(attributes: readonly Attribute[]): Record<string, unknown> {
  return Object.fromEntries(
    attributes.map(({ key, value }) => [
      key,
      // The decoder has defaults on its prototype.
      Object.hasOwn(value, "intValue") ? Number(value.intValue) : Object.values({ ...value })[0],
    ]),
  );
}
