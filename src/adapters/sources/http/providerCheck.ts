import { readKey } from "./keys.ts";
import { providerOf } from "./providers/index.ts";
import type { Provider } from "./providers/provider.ts";
import { type ProviderAuth, secretsOf } from "./schema.ts";
import { headerText, type SignatureScheme, type SignedRequest } from "./scheme.ts";
import { createSignatureCheck, type Refusal } from "./signature.ts";
import { parseProviderText } from "./signedText.ts";

/** Verifies the requests of a provider. */
export interface ProviderCheck {
  readonly refusal: Refusal;
  /** The secret that a request is signed with; undefined for one that is refused. */
  readonly secretOf: (request: SignedRequest, body: Buffer) => string | undefined;
}

/** @throws Error for a secret in a form that the provider does not have; the configuration is checked for it */
export function createProviderCheck(auth: ProviderAuth, clock: { now(): number }): ProviderCheck {
  const secrets = secretsOf(auth);
  for (const secret of secrets) {
    const problem = secretProblem(providerOf(auth.provider), secret);
    if (problem !== undefined) throw new Error(problem);
  }
  const refusal = checkWith(auth, secrets, clock);
  const single = secrets.map((secret) => ({ secret, refusal: checkWith(auth, [secret], clock) }));
  return {
    refusal,
    secretOf: (request, body) => single.find((check) => check.refusal(request, body) === null)?.secret,
  };
}

function checkWith(auth: ProviderAuth, secrets: readonly string[], clock: { now(): number }): Refusal {
  const { schemes } = providerOf(auth.provider);
  const checks = schemes.flatMap((scheme: SignatureScheme & { readonly when?: string }) => {
    const keys = secrets.flatMap((secret) => readKey(scheme.key, secret) ?? []);
    if (keys.length === 0) return [];
    const refusal = createSignatureCheck({
      scheme,
      signed: parseProviderText(scheme.signed),
      keys,
      toleranceMs: auth.timestampTolerance,
      url: auth.url,
      webhookId: auth.webhookId,
      now: () => clock.now(),
    });
    return [{ when: scheme.when, refusal }];
  });
  return (request, body) => {
    const chosen = checks.find(({ when }) => when === undefined || headerText(request, when) !== undefined);
    const check = chosen ?? checks.at(-1);
    return check === undefined ? "no secret fits this request" : check.refusal(request, body);
  };
}

/** What is wrong with the form of a secret; undefined when a scheme of the provider takes it. */
export function secretProblem(provider: Provider, secret: string): string | undefined {
  try {
    if (provider.schemes.some(({ key }) => readKey(key, secret) !== undefined)) return undefined;
    return `expected ${provider.secret}`;
  } catch (error) {
    return (error as Error).message;
  }
}
