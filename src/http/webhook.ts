import type { IncomingMessage, ServerResponse } from "node:http";
import {
  createProviderCheck,
  credentialsOf,
  formToJson,
  type HandshakeAnswer,
  isForm,
  jsonOf,
  type Provider,
  providerOf,
  verifyTokensOf,
} from "../adapters/sources/http/kind.ts";
import type { InboundAuth, ProviderAuth } from "../adapters/sources/http/schema.ts";
import { JsonDocument } from "../core/receipt/jsonDocument.ts";
import { madeOf } from "../model/secret.ts";
import type { Clock } from "../time/clock.ts";
import { JSON_TYPE, send, TEXT_TYPE } from "./exchange.ts";

/** What an HTTP source does besides receiving messages, because its sender is a provider of webhooks. */
interface Webhook {
  /** Methods besides POST, for handshakes. */
  readonly methods: readonly string[];
  /** Answers an unsigned handshake; undefined for any other request. */
  greet(req: IncomingMessage): HandshakeAnswer | undefined;
  /** Answers a signed handshake. @param body of a request whose credentials hold */
  reply(req: IncomingMessage, body: Buffer): HandshakeAnswer | undefined;
  /** Converts a form into JSON and returns any other body unchanged. @returns the reason, as text, when it cannot */
  jsonOf(req: IncomingMessage, body: Buffer): Buffer | string;
}

interface WebhookSettings {
  readonly auth?: InboundAuth | undefined;
  readonly webhookOrigins?: readonly string[] | undefined;
}

/** @param settings of the source. @returns undefined where its sender is no such provider and asks nothing before */
export function createWebhook(
  { auth, webhookOrigins }: WebhookSettings,
  clock: Pick<Clock, "now">,
): Webhook | undefined {
  const own = auth?.kind === "provider" ? ofProvider(auth, providerOf(auth.provider), clock) : undefined;
  if (webhookOrigins === undefined) return own;
  return {
    methods: [...(own?.methods ?? []), "OPTIONS"],
    greet: (req) => (req.method === "OPTIONS" ? originAnswer(req, webhookOrigins) : own?.greet(req)),
    reply: (req, body) => own?.reply(req, body),
    jsonOf: (req, body) => own?.jsonOf(req, body) ?? body,
  };
}

const NO_HANDSHAKE: HandshakeAnswer = { status: 403, body: { error: "the request is not a handshake" } };

function ofProvider(auth: ProviderAuth, { handshake, form }: Provider, clock: Pick<Clock, "now">): Webhook {
  const { methods = [], greet, marker, reply } = handshake ?? {};
  const tokens = verifyTokensOf(auth);
  const verifyTokens = madeOf(tokens, () => tokens.map((token) => token.reveal()));
  const check = madeOf(credentialsOf(auth), () => createProviderCheck(auth, clock));
  return {
    methods,
    greet(req) {
      if (greet === undefined) return undefined;
      const { method = "" } = req;
      const query = new URLSearchParams(req.url?.split("?", 2)[1] ?? "");
      const isJson = /[/+]json\b/i.test(req.headers["content-type"] ?? "");
      const answer = greet({ method, isJson, query }, verifyTokens());
      // Only a POST is a message.
      return answer ?? (method === "POST" ? undefined : NO_HANDSHAKE);
    },
    reply(req, body) {
      if (reply === undefined || marker === undefined || !body.includes(marker)) return undefined;
      return reply(jsonOf(body), () => check().secretOf(req, body));
    },
    jsonOf(req, body) {
      // No signature covers the type: recorded JSON would come again as a form, under the key of another message.
      const isFormBody = form !== undefined && isForm(req) && JsonDocument.parse(body) === null;
      return isFormBody ? formToJson(body, form.jsonField) : body;
    },
  };
}

/** CloudEvents, "HTTP 1.1 Web Hooks for Event Delivery", section 4: the sender asks whether it may deliver. */
function originAnswer(req: IncomingMessage, origins: readonly string[]): HandshakeAnswer {
  const asked = req.headers["webhook-request-origin"];
  if (typeof asked !== "string") return { status: 400, body: { error: "missing WebHook-Request-Origin header" } };
  const isAllowed = origins.some((origin) => origin === "*" || origin.toLowerCase() === asked.toLowerCase());
  if (!isAllowed) return { status: 403, body: { error: "webhookOrigins does not list the WebHook-Request-Origin" } };
  // The source's own limit decides about the rate.
  const rate = req.headers["webhook-request-rate"] === undefined ? {} : { "WebHook-Allowed-Rate": "*" };
  return { status: 200, body: "", headers: { Allow: "POST", "WebHook-Allowed-Origin": asked, ...rate } };
}

/** Sends the answer to a handshake. */
export function answerHandshake(res: ServerResponse, { status, body, headers = {} }: HandshakeAnswer): void {
  for (const [name, value] of Object.entries(headers)) res.setHeader(name, value);
  if (status === 204) {
    // It must not have a Content-Length.
    res.writeHead(204).end();
  } else if (typeof body === "object") {
    send(res, status, JSON_TYPE, JSON.stringify(body));
  } else if (body === "") {
    send(res, status, null, "");
  } else {
    // The text comes from the request: no browser may take it for a page.
    res.setHeader("X-Content-Type-Options", "nosniff");
    send(res, status, TEXT_TYPE, body);
  }
}
