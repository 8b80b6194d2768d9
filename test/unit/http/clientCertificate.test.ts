import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { describe, expect, test } from "@jest/globals";
import {
  type ClientCertificateSettings,
  certificateProblems,
  createCertificateCheck,
} from "../../../src/adapters/sources/http/clientCertificate.ts";
import { anyText, fuzz } from "../../property/fuzz.ts";

const pemOf = (name: string) => readFileSync(new URL(`../../support/tls/${name}.pem`, import.meta.url), "utf8");
const CALLER = pemOf("caller");
const { raw, fingerprint256, validFrom, validTo } = new X509Certificate(CALLER);
const BASE64 = raw.toString("base64");
const HASH = fingerprint256.replaceAll(":", "").toLowerCase();
const NOW = Date.parse(validFrom) + 86_400_000;

const BY_NAME = { commonNames: ["billing"] };
const UNKNOWN = "this source does not accept the client certificate";
const UNREADABLE = "the X-Client-Cert header holds no certificate, or several";

interface Asked {
  readonly by?: Partial<ClientCertificateSettings>;
  readonly peer?: string | undefined;
  readonly now?: number;
}

function refusal(texts: string | readonly string[], { by = BY_NAME, peer = "10.1.2.3", now = NOW }: Asked = {}) {
  const all = [texts].flat();
  const check = createCertificateCheck(
    { certificateHeader: "X-Client-Cert", trustedProxies: ["10.0.0.0/8", "fd00::/8", "192.0.2.7"], ...by },
    () => now,
  );
  const rawHeaders = all.flatMap((text) => ["x-CLIENT-cert", text]);
  const headers = all.length === 0 ? {} : { "x-client-cert": all.join(", ") };
  return check({ headers, rawHeaders, socket: { remoteAddress: peer } }, null);
}

describe("a client certificate is read", () => {
  test.each([
    ["percent-encoded PEM, as of nginx", encodeURIComponent(CALLER)],
    ["percent-encoded PEM with safe characters, as of AWS", CALLER.replaceAll("\n", "%0A").replaceAll(" ", "%20")],
    ["a chain of PEM, the client's first", encodeURIComponent(CALLER + pemOf("odd"))],
    ["the field of RFC 9440", `:${BASE64}:`],
    ["base64, as of HAProxy", BASE64],
    ["a chain in base64, as of Traefik", `${BASE64},${BASE64}`],
    ["Envoy's certificate", `By=spiffe://a;Hash=${HASH};Cert="${encodeURIComponent(CALLER)}";Subject="CN=x,O=y";URI=`],
  ])("from %s", (_form, text) => {
    expect(refusal(text)).toBeNull();
    expect(refusal(text, { by: { subjectAltNames: ["DNS:billing.example"] } })).toBeNull();
    expect(refusal(text, { by: { subjectAltNames: ["URI:spiffe://example/billing"] } })).toBeNull();
    expect(refusal(text, { by: { fingerprints: [fingerprint256] } })).toBeNull();
    expect(refusal(text, { by: { fingerprints: ["0".repeat(64), HASH.toUpperCase()] } })).toBeNull();
    const others = { commonNames: ["Billing", "billin"], subjectAltNames: ["DNS:spiffe://example/billing", "URI:x"] };
    expect(refusal(text, { by: { ...others, fingerprints: ["0".repeat(64)] } })).toBe(UNKNOWN);
  });

  test("from Envoy's hash, which shows nothing but itself", () => {
    expect(refusal(`Hash=${HASH};Subject="CN=billing"`, { by: { fingerprints: [HASH] } })).toBeNull();
    expect(refusal(`Hash=${HASH};Subject="CN=billing";URI=a;URI=b`)).toBe(UNKNOWN);
  });

  test.each([
    ...[
      "",
      " ",
      "billing",
      ":",
      "::",
      ":a:b:",
      `:${BASE64}:, :${BASE64}:`,
      `:${BASE64}`,
      "%",
      "%E0%A4%A",
      "AAAA",
      "-----BEGIN",
    ],
    encodeURIComponent("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"),
    BASE64.slice(0, 400),
    ...[
      `Hash=${HASH},Hash=${HASH}`,
      `Hash=${HASH};Hash=${HASH}`,
      `Hash=${HASH},`,
      "Hash=",
      "Hash=zz",
      'Cert="%"',
      `Hash="${HASH}`,
    ],
    `Cert="${encodeURIComponent(CALLER)}";Cert="${encodeURIComponent(CALLER)}"`,
  ])("from nothing else: %j", (text) => {
    expect(refusal(text, { by: { fingerprints: [HASH], ...BY_NAME } })).toBe(UNREADABLE);
  });

  test("without taking the text of one name for another", () => {
    const odd = encodeURIComponent(pemOf("odd"));
    expect(refusal(odd)).toBe(UNKNOWN);
    expect(refusal(odd, { by: { subjectAltNames: ["DNS:billing.example", 'DNS:billing.example"'] } })).toBe(UNKNOWN);
    expect(refusal(odd, { by: { subjectAltNames: ["DNS:other.example"] } })).toBeNull();
    expect(refusal(odd, { by: { commonNames: ["second"] } })).toBeNull();
  });
});

describe("a client certificate is refused", () => {
  test.each([
    ["11.0.0.1", "the request did not come through a trusted proxy"],
    ["192.0.2.8", "the request did not come through a trusted proxy"],
    ["::1", "the request did not come through a trusted proxy"],
    ["::ffff:11.0.0.1", "the request did not come through a trusted proxy"],
    [undefined, "the request did not come through a trusted proxy"],
    ["::ffff:10.9.9.9", null],
    ["fd12::1", null],
    ["192.0.2.7", null],
  ])("by its origin: %s", (peer, expected) => {
    const check = createCertificateCheck(
      { certificateHeader: "X-C", trustedProxies: ["10.0.0.0/8", "fd00::/8", "192.0.2.7"], ...BY_NAME },
      () => NOW,
    );
    expect(check({ headers: { "x-c": BASE64 }, socket: { remoteAddress: peer } }, null)).toBe(expected);
  });

  test("if it is missing, came twice, or has expired", () => {
    expect(refusal([])).toBe("missing X-Client-Cert header");
    expect(refusal([BASE64, BASE64])).toBe("several X-Client-Cert headers");
    const late = "the client certificate has expired, or is not valid yet";
    expect(refusal(BASE64, { now: Date.parse(validTo) + 1 })).toBe(late);
    expect(refusal(BASE64, { now: Date.parse(validFrom) - 1 })).toBe(late);
  });

  test("or taken, whatever the header holds", () => {
    const pieces = ["Hash=", HASH, ";", ",", '"', "Cert=", BASE64, ":", "%", "-----BEGIN CERTIFICATE-----", "\\", "="];
    const reasons = new Set<string | null>();
    fuzz(
      (dice) => {
        const part = () => (dice.chance(0.9) ? dice.pick(pieces) : anyText(dice, 2));
        return dice.chance(0.8) ? Array.from({ length: dice.below(7) }, part).join("") : anyText(dice);
      },
      (text) => {
        const reason = refusal(text, { by: { commonNames: ["nobody"] } });
        reasons.add(reason);
        return reason === UNREADABLE || reason === UNKNOWN;
      },
    );
    expect(reasons.size).toBe(2);
  });
});

describe("the settings", () => {
  const problems = (settings: Partial<ClientCertificateSettings>) =>
    certificateProblems({ certificateHeader: "X-C", trustedProxies: ["::1"], ...BY_NAME, ...settings }).map(
      ([key]) => key,
    );

  test.each(["10.0.0.0/8", "10.1.2.3", "::1", "fd00::/8", "::ffff:10.0.0.1"])("take the network %s", (network) => {
    expect(problems({ trustedProxies: [network] })).toEqual([]);
  });

  test.each(["", "10", "10.0.0", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/8/8", "*", "proxy.example", "fd00::/129"])(
    "refuse the network %j",
    (network) => {
      expect(problems({ trustedProxies: ["::1", network] })).toEqual(["trustedProxies"]);
    },
  );

  test("refuse what could never match, and what matches everybody", () => {
    expect(problems({ fingerprints: [HASH, fingerprint256, HASH.slice(1)] })).toEqual(["fingerprints"]);
    expect(problems({ subjectAltNames: ["DNS:a", "billing.example", "DNS:"] })).toEqual([
      "subjectAltNames",
      "subjectAltNames",
    ]);
    expect(problems({ commonNames: undefined })).toEqual(["certificateHeader"]);
  });
});
