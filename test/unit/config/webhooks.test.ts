import { describe, expect, test } from "@jest/globals";
import { secretsOf as credentialsOf } from "../../../src/adapters/sources/http/kind.ts";
import { secretsOf } from "../../../src/config/mask.ts";
import { effectiveConfig, printConfig } from "../../../src/config/print.ts";
import { read } from "../../support/repository.ts";
import { SENDERS } from "../http/webhooks/senders.ts";
import { DATABASE, disk, load, loadWith, problemsOf, warningsOf } from "./support.ts";

const source = (auth: string, more = "") => `sources: { s: { path: /p, ${more} auth: { ${auth} } } }\n`;
const authOf = (config: ReturnType<typeof loadWith>) => {
  const { s } = config.sources;
  return s?.kind === "http" ? s.auth : undefined;
};

describe("a source with a provider", () => {
  test("needs no idempotencyKeyPath and no eventTypePath", () => {
    const config = loadWith(source("provider: github, secret: s"));
    expect(config.sources.s).toMatchObject({ kind: "http", path: "/p", topic: "{{ eventType }}" });
    expect(config.sources.s).not.toHaveProperty("idempotencyKeyPath");
    expect(authOf(config)).toMatchObject({ kind: "provider", provider: "github", timestampTolerance: 300_000 });
    expect(warningsOf(source("provider: github, secret: s"))).toEqual([]);
  });

  test("may be selected by a variable", () => {
    const env = { SVC_SOURCES_S_AUTH_PROVIDER: "github", SVC_SOURCES_S_AUTH_SECRET: "x" };
    expect(authOf(loadWith("sources: { s: { path: /p } }\n", { env }))).toMatchObject({ kind: "provider" });
  });

  test("without one, an HTTP source needs its path as before", () => {
    const [problem] = problemsOf(source("secret: s"));
    expect(problem).toMatch(
      /^sources\.s: no kind fits; .*http needs path and idempotencyKeyPath or idempotencyKeyHeader or idempotencyKeyExpression or cloudEvents or auth\.provider; .*Nearest is http/,
    );
  });

  test("a broker source stays one whatever auth it has", () => {
    const yaml = "sources: { s: { path: /p, queueName: q, connectionUrl: amqp://h, auth: { secret: s } } }\n";
    expect(loadWith(yaml).sources.s).toMatchObject({ kind: "rabbitmq" });
  });

  test("takes the tolerance of the provider, or its own", () => {
    expect(
      authOf(
        loadWith(
          source(
            "provider: sendgrid, secret: MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEEDr2LjtURuePQzplybdC+u4CwrqDqBaWjcMMsTbhdbcwHBcepxo7yAQGhHPTnlvFYPAZFceEu/1FwCM/QmGUhA==",
          ),
        ),
      ),
    ).toMatchObject({ timestampTolerance: 90_000_000 });
    expect(authOf(loadWith(source("provider: slack, secret: s, timestampTolerance: 5")))).toMatchObject({
      timestampTolerance: 5,
    });
  });

  test.each([
    ["provider: github", "sources.s.auth.secret: is required: the webhook's secret"],
    ["provider: GitHub, secret: s", "sources.s.auth.provider: expected one of standard-webhooks,"],
    ["provider: gihub, secret: s", 'did you mean "github"?'],
    ["provider: twilio, secret: s", "sources.s.auth.url: is required: Twilio signs the URL that it calls"],
    ["provider: twilio, secret: s, url: 'https://h/p?a=b'", "sources.s.auth.url: must not contain ? or #"],
    ["provider: paypal, secret: s, webhookId: i", "sources.s.auth.secret: expected an RSA public key or certificate"],
    [
      "provider: discord, secret: xyzzy",
      "sources.s.auth.secret: expected an ed25519 public key: 64 hexadecimal digits",
    ],
    ["provider: discord, secret: abcd", "sources.s.auth.secret: expected an ed25519 public key of 32 bytes; found 2"],
    ["provider: adyen, secret: xyzzy", "sources.s.auth.secret: expected an HMAC key in hexadecimal"],
    ["provider: sendgrid, secret: xyzzy", "sources.s.auth.secret: expected an ECDSA public key"],
    ["provider: svix, secret: whsk_xyzzy", "sources.s.auth.secret: is a private key (whsk_)"],
    ["provider: svix, secrets: [whsec_eHl6enk=, 'whsec_xyzzy!']", "sources.s.auth.secrets[1]: expected whsec_"],
    ["provider: svix, secret: whsec_x", "sources.s.auth.secret: expected whsec_"],
    ["provider: github, secret: a, secrets: [b]", "sources.s.auth.secret: cannot be combined with secrets"],
    [
      "provider: meta, secret: s, verifyToken: a, verifyTokens: [b]",
      "sources.s.auth.verifyToken: cannot be combined with verifyTokens",
    ],
    ["provider: meta, secret: s, verifyTokens: []", "sources.s.auth.verifyTokens: must not be an empty list"],
    ["provider: github, secrets: []", "sources.s.auth.secrets: must not be an empty list"],
  ])("%s stops the start", (auth, expected) => {
    const problems = problemsOf(source(auth)).join("\n");
    expect(problems).toContain(expected);
    expect(problems).not.toContain("xyzzy");
  });

  test("is not split if its signature covers members of the whole body", () => {
    const problem = "sources.s.batch.path: cannot be set with this provider, which signs no items of a list: remove it";
    const split = (auth: string) => problemsOf(source(auth, "batch: { path: '$.items[*]' },"));
    for (const provider of ["adyen", "mailgun"])
      expect(split(`provider: ${provider}, secret: ab`)).toEqual([expect.stringContaining(problem)]);
    for (const provider of ["github", "microsoft-graph", "hubspot, url: 'https://h/p'"])
      expect(split(`provider: ${provider}, secret: ab`)).toEqual([]);
  });

  test("a key that the provider does not use is a warning", () => {
    const auth = "provider: github, secret: s, webhookId: i, url: 'https://h/p', verifyToken: xyzzy";
    const warnings = warningsOf(source(auth)).join("\n");
    for (const key of ["webhookId", "url", "verifyToken"])
      expect(warnings).toContain(`sources.s.auth.${key}: has no effect`);
    expect(warnings).not.toContain("xyzzy");
  });

  test("several verify tokens have an effect at Meta alone", () => {
    const auth = (provider: string) => source(`provider: ${provider}, secret: s, verifyTokens: [xyzzy, b]`);
    expect([problemsOf(auth("meta")), warningsOf(auth("meta")).join()]).toEqual([
      [],
      expect.not.stringContaining("verify"),
    ]);
    expect(warningsOf(auth("github")).join()).toContain("sources.s.auth.verifyTokens: has no effect");
  });

  test.each([
    "admin: { enabled: true, auth: { provider: github, secret: s } }",
    "inbox: { pull: { enabled: true, auth: { provider: github, secret: s } } }",
  ])("%s: the routes of the service take none", (yaml) => {
    expect(problemsOf(`${yaml}\n`).join()).toContain("auth.provider: is for sources");
  });
});

describe("docs/webhooks", () => {
  const yamlOf = (page: string) => [...page.matchAll(/^```yaml\n(sources:.*?)^```$/gms)].map(([, yaml = ""]) => yaml);

  test.each(SENDERS.map((sender, index): [string, (typeof SENDERS)[number]] => [`${sender.name}, ${index}`, sender]))(
    "the page of %s shows a configuration that loads",
    (_name, sender) => {
      const { secret } = sender.newKey();
      const [yaml = "", ...others] = yamlOf(read(`docs/webhooks/${sender.name}.md`));
      expect(others).toEqual([]);
      const names = [...yaml.matchAll(/\$\{(\w+)\}/g)].map(([, name = ""]) => name);
      const options = {
        env: Object.fromEntries(names.map((name) => [name, secret])),
        readFile: disk({ "svc.yml": DATABASE + yaml, "/etc/svc/paypal.pem": secret }),
      };
      expect(problemsOf(yaml, options)).toEqual([]);
      expect(warningsOf(yaml, options)).toEqual([]);
      expect(loadWith(yaml, options).sources.events).toMatchObject({ auth: { provider: sender.name } });
    },
  );

  test("the overview shows configurations that load", () => {
    const examples = yamlOf(read("docs/webhooks/README.md"));
    expect(examples).toHaveLength(1);
    for (const yaml of examples) expect(problemsOf(yaml, { env: { STRIPE_SECRET: "whsec_eHl6" } })).toEqual([]);
    const [, hmac = ""] = /^```yaml\n(auth:.*?)^```$/ms.exec(read("docs/webhooks/README.md")) ?? [];
    const yaml = `admin:\n  enabled: true\n  ${hmac.replaceAll("\n", "\n  ")}\n`;
    expect(problemsOf(yaml, { env: { SECRET: "x" } })).toEqual([]);
    expect(loadWith(yaml, { env: { SECRET: "x" } }).admin.auth).toMatchObject({ kind: "hmac", signatureField: "v1" });
  });
});

describe("several credentials", () => {
  test("are read from files and from a variable, and masked wherever they are shown", () => {
    const yaml = `${DATABASE}${source("provider: github, secrets: ['file:/run/new', old-secret]", "")}admin: { enabled: true, auth: { tokens: [a-token, b-token] } }\n`;
    const loaded = load(yaml, { readFile: disk({ "svc.yml": yaml, "/run/new": "new-secret\n" }) });
    const auth = authOf(loaded.config);
    expect(auth === undefined ? [] : credentialsOf(auth)).toEqual(["new-secret", "old-secret"]);
    const shown = [JSON.stringify(effectiveConfig(loaded)), printConfig(loaded), JSON.stringify(loaded.config)].join(
      "\n",
    );
    for (const secret of ["new-secret", "old-secret", "a-token", "b-token"]) {
      expect(shown).not.toContain(secret);
      expect(secretsOf(loaded.config)).toContain(secret);
    }
    expect(shown).toContain("Secret(***)");
  });

  test("from variables, as a list and one by one", () => {
    const yaml = "admin: { enabled: true }\n";
    const files = disk({ "svc.yml": DATABASE + yaml, "/run/new": "from file" });
    const list = loadWith(yaml, { env: { SVC_ADMIN_AUTH_TOKENS: "file:/run/new, b" }, readFile: files });
    expect(list.admin.auth && credentialsOf(list.admin.auth)).toEqual(["from file", "b"]);
    const single = loadWith(yaml, { env: { SVC_ADMIN_AUTH_TOKENS_0: "a,1", SVC_ADMIN_AUTH_TOKENS_1: "b" } });
    expect(single.admin.auth && credentialsOf(single.admin.auth)).toEqual(["a,1", "b"]);
  });

  test.each([
    ["auth: { token: a, tokens: [b] }", "admin.auth.token: cannot be combined with tokens"],
    ["auth: { tokens: [] }", "admin.auth.tokens: must not be an empty list"],
    ["auth: { tokens: [a, ''] }", "admin.auth.tokens[1]: must not be empty"],
    ["auth: { tokens: [a, 'file:/gone'] }", "cannot read the secret file"],
    [`auth: { keys: ['\${NONE}'] }`, "has no value"],
  ])("%s stops the start", (auth, expected) => {
    expect(problemsOf(`admin: { enabled: true, ${auth} }\n`).join("\n")).toContain(expected);
  });
});

describe("hmac", () => {
  const of = (keys: string) => source(`secret: s, ${keys}`, "idempotencyKeyPath: $.id, topic: t,");

  test.each([
    ["timestampField: t", "timestampField: needs signatureField"],
    [
      "timestampField: t, signatureField: v1, timestampHeader: T",
      "timestampField: cannot be combined with timestampHeader",
    ],
    ["signedText: 'x'", "signedText: must have {{ body }}"],
    ["signedText: '{{ timestamp }}{{ body }}'", "signedText: has {{ timestamp }}, which needs timestampHeader"],
    ["signedText: '{{ url }}{{ body }}'", "signedText: has {{ url }}, which needs url"],
    ["signedText: '{{ bdy }}{{ body }}'", "signedText: has the unknown placeholder {{ bdy }}; there are method, url"],
    ["signedText: '{{ $.id }}{{ body }}'", "signedText: has the unknown placeholder {{ $.id }}"],
    ["signedText: '{{ form }}{{ body }}'", "signedText: has the unknown placeholder {{ form }}"],
    [
      "signedText: '{{ body }}', signaturePayloadFormat: BODY",
      "signaturePayloadFormat: cannot be combined with signedText",
    ],
    ["encoding: HEX", 'encoding: expected one of hex, base64, base64url (in this letter case), found "HEX"'],
    ["timestampUnit: m", "timestampUnit: expected one of ms, s"],
  ])("%s stops the start", (keys, expected) => {
    expect(problemsOf(of(keys)).join("\n")).toContain(`sources.s.auth.${expected}`);
  });

  test("what has no effect is a warning", () => {
    expect(warningsOf(of("signatureField: v1, signaturePrefix: x")).join()).toContain("signaturePrefix: has no effect");
    expect(warningsOf(of("url: 'https://h/p'")).join()).toContain("url: has no effect");
  });

  test("with a time in the header, time and body are signed", () => {
    const auth = authOf(loadWith(of("signatureField: v1, timestampField: t")));
    expect(auth).toMatchObject({ signaturePayloadFormat: "TIMESTAMP_DOT_BODY", timestampUnit: "ms", encoding: "hex" });
  });
});
