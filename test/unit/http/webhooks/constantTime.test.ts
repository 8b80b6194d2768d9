import { expect, jest, test } from "@jest/globals";

/** The lengths of the buffers that were compared in constant time, since the last reset. */
const compared: number[] = [];

const crypto = await import("node:crypto");
jest.unstable_mockModule("node:crypto", () => ({
  ...crypto,
  timingSafeEqual(a: Buffer, b: Buffer) {
    compared.push(a.length);
    return crypto.timingSafeEqual(a, b);
  },
}));

const { createProviderCheck } = await import("../../../../src/adapters/sources/http/kind.ts");
const { SENDERS } = await import("./senders.ts");
const { authOf, withSignature } = await import("./source.ts");

const NOW = Date.UTC(2026, 0, 2);
/** Signatures with a public key hold no secret that a comparison could reveal. */
const SECRETS = SENDERS.map((sender) => ({ sender, key: sender.newKey(), other: sender.newKey() })).filter(
  ({ key }) => typeof key.signing === "string",
);

test.each(SECRETS.map((each, index): [string, (typeof SECRETS)[number]] => [`${each.sender.name}, ${index}`, each]))(
  "%s compares all bytes with all secrets, wherever the first wrong one is",
  (_name, { sender, key, other }) => {
    const check = createProviderCheck(authOf(sender, key.secret, other.secret), { now: () => NOW });
    const sent = sender.send(key.signing, NOW);
    const digits = sender.encoding === "text" ? "x" : "0";
    const changes = [
      (text: string) => text,
      (text: string) => (text.startsWith(digits) ? "1" : digits) + text.slice(1),
      (text: string) => `${text.slice(0, 20)}${text[20] === digits ? "1" : digits}${text.slice(21)}`,
    ];
    const comparisons = changes.map((change) => {
      const { headers, body, query } = withSignature(sent, sender, change);
      const lowerCase = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
      compared.length = 0;
      const refusal = check.refusal({ headers: lowerCase, method: "POST", url: `/inbox/orders${query ?? ""}` }, body);
      return { passes: refusal === null, compared: [...compared] };
    });
    expect(comparisons.map(({ passes }) => passes)).toEqual([true, false, false]);
    const [right] = comparisons;
    expect(right?.compared.length).toBeGreaterThanOrEqual(2);
    for (const each of comparisons) expect(each.compared).toEqual(right?.compared);
    // A whole digest: of SHA-1 or SHA-256.
    for (const length of right?.compared ?? []) expect([20, 32]).toContain(length);
  },
);
