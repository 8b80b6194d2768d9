import { HMAC } from "./hmac.ts";
import type { Provider } from "./provider.ts";
import { PUBLIC_KEY } from "./publicKey.ts";
import { STANDARD } from "./standard.ts";

/** Every provider by the name that `auth.provider` takes. A new one is an entry in one of the tables, its tests and a page. */
const PROVIDERS = { ...STANDARD, ...HMAC, ...PUBLIC_KEY } as const satisfies Readonly<Record<string, Provider>>;

type ProviderName = keyof typeof PROVIDERS;

export const PROVIDER_NAMES = Object.keys(PROVIDERS) as readonly ProviderName[];

export function providerOf(name: ProviderName): Provider {
  return PROVIDERS[name];
}
