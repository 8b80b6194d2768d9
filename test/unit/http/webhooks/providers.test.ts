import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, test } from "@jest/globals";
import { PROVIDER_NAMES, providerOf } from "../../../../src/adapters/sources/http/providers/index.ts";
import type { AttributePlace } from "../../../../src/ports/kinds.ts";
import { failOnLeaks } from "../../../support/leaks.ts";
import { seen } from "../harness.ts";
import { SENDERS, type Sender } from "./senders.ts";
import { authOf, startSource, withoutSignature, withSignature } from "./source.ts";

failOnLeaks();

test("every provider has a sender here, a page, and a link in the list of pages", () => {
  expect(new Set(SENDERS.map(({ name }) => name))).toEqual(new Set(PROVIDER_NAMES));
  const pages = new Set(readdirSync("docs/webhooks"));
  const list = readFileSync("docs/webhooks/README.md", "utf8");
  for (const name of PROVIDER_NAMES) {
    expect(pages).toContain(`${name}.md`);
    expect(list).toContain(`(${name}.md)`);
  }
});

const headersIn = (places: readonly AttributePlace[]): string[] =>
  places.flatMap((place) => {
    if ("joined" in place) return headersIn(place.joined);
    return "header" in place ? [place.header] : [];
  });

test.each(PROVIDER_NAMES)("the page of %s names the headers of the key and the type that are not signed", (name) => {
  const { schemes, idempotencyKey, eventType } = providerOf(name);
  const isSigned = (header: string) => schemes.some(({ signed }) => signed.includes(`{{ headers.${header} }}`));
  const expected = new Set(headersIn([...idempotencyKey, ...eventType]).filter((header) => !isSigned(header)));

  const [, listed = ""] = /^- Not signed: ([^.]*)\./m.exec(readFileSync(`docs/webhooks/${name}.md`, "utf8")) ?? [];
  expect(new Set([...listed.matchAll(/`([^`]+)`/g)].map(([, header]) => header))).toEqual(expected);
});

const named = SENDERS.map((sender, index): [string, Sender] => [`${sender.name}, ${index}`, sender]);

describe.each(named)("webhooks of %s", (_name, sender) => {
  const key = sender.newKey();
  const start = async (...secrets: readonly string[]) =>
    startSource(authOf(sender, ...(secrets.length === 0 ? [key.secret] : secrets)));

  /** Nothing is stored, and the answer is the specification's, without a secret or a signature in it. */
  async function expectRefused(http: Awaited<ReturnType<typeof start>>, response: Response): Promise<string> {
    const { status, body } = await seen(response);
    expect({ status, body }).toEqual({ status: 401, body: expect.any(String) });
    const { error, ...rest } = JSON.parse(body) as { error: string };
    expect(rest).toEqual({});
    expect(response.headers.get("www-authenticate")).toBe("Signature");
    expect(http.store.rows).toEqual([]);
    expect(http.calls).toEqual(["inboxRejection(unauthorized)"]);
    for (const text of [error, JSON.stringify(http.lines)]) expect(text).not.toContain(key.secret);
    return error;
  }

  test("are stored with the provider's key and event type; sent again, they are duplicates", async () => {
    await using http = await start();
    const sent = sender.send(key.signing, http.clock.ms);
    expect(await seen(await http.deliver(sent))).toMatchObject({ status: 202 });
    expect(http.store.rows).toMatchObject([
      {
        idempotencyKey:
          typeof sender.expected.key === "string" ? sender.expected.key : expect.stringMatching(sender.expected.key),
        eventType: sender.expected.type,
      },
    ]);
    const [row] = http.store.rows;
    if ("header" in sender.signature) {
      const names = Object.keys(row?.headers ?? {}).map((name) => name.toLowerCase());
      expect(names).not.toContain(sender.signature.header.toLowerCase());
    }
    expect(await seen(await http.deliver(sent))).toEqual({ status: 200, body: '{"status":"duplicate"}' });
    expect(http.store.rows).toHaveLength(1);
  });

  test("are refused when a byte of the signature is another", async () => {
    await using http = await start();
    const other = (text: string) => `${text.startsWith("b") ? "c" : "b"}${text.slice(1)}`;
    const sent = withSignature(sender.send(key.signing, http.clock.ms), sender, other);
    expect(await expectRefused(http, await http.deliver(sent))).toMatch(/^the (signature|secret) .* is wrong$/);
  });

  test("are refused when a byte of the body is another", async () => {
    await using http = await start();
    const sent = sender.send(key.signing, http.clock.ms);
    if (sender.signsBody === false) {
      // The documents of the provider sign nothing of the body, or a few members of it.
      const foreign = sender.send(sender.newKey().signing, http.clock.ms);
      await expectRefused(http, await http.deliver(foreign));
      return;
    }
    const body = Buffer.from(sent.body);
    const at = body.length - 4;
    body[at] = (body[at] ?? 0) ^ 1;
    await expectRefused(http, await http.deliver({ ...sent, body }));
  });

  test("are refused without a signature, with a cut one, and with one in another encoding", async () => {
    const encodings = (text: string): readonly string[] => {
      if (sender.encoding === "text") return [Buffer.from(text).toString("hex"), Buffer.from(text).toString("base64")];
      const bytes = Buffer.from(text, sender.encoding);
      return sender.encoding === "hex" ? [bytes.toString("base64")] : [bytes.toString("hex"), `-${text.slice(1)}`];
    };
    const cuts = [(text: string) => text.slice(0, -4), (text: string) => text.slice(0, 4), () => ""];
    const others = [0, 1].map((index) => (text: string) => encodings(text)[index] ?? "%");
    for (const change of [...cuts, ...others]) {
      await using http = await start();
      const sent = withSignature(sender.send(key.signing, http.clock.ms), sender, change);
      await expectRefused(http, await http.deliver(sent));
    }
    await using http = await start();
    await expectRefused(http, await http.deliver(withoutSignature(sender.send(key.signing, http.clock.ms), sender)));
  });

  test("pass with either of two secrets, and with no third one", async () => {
    const [other, third] = [sender.newKey(), sender.newKey()];
    for (const secrets of [
      [key.secret, other.secret],
      [other.secret, key.secret],
    ]) {
      await using http = await start(...secrets);
      expect((await http.deliver(sender.send(key.signing, http.clock.ms))).status).toBe(202);
    }
    await using http = await start(key.secret, other.secret);
    await expectRefused(http, await http.deliver(sender.send(third.signing, http.clock.ms)));
  });

  test("are refused when they are older than the tolerance, or from the future", async () => {
    const { toleranceMs } = sender;
    await using http = await start();
    const at = (ms: number) => http.deliver(sender.send(key.signing, http.clock.ms + ms));
    if (toleranceMs === undefined) {
      // Without a time that is signed, the key alone stops a repetition.
      expect((await at(-86_400_000)).status).toBe(202);
      return;
    }
    const error = await expectRefused(http, await at(-toleranceMs - 1000));
    expect(error).toMatch(new RegExp(`^the time in .* is more than ${toleranceMs} ms away from the clock$`));
    expect((await at(toleranceMs + 1000)).status).toBe(401);
    expect(http.store.rows).toEqual([]);
    expect((await at(-toleranceMs)).status).toBe(202);
  });
});
