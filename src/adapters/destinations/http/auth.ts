import type { buildConnector } from "undici";
import type { Secret } from "../../../model/secret.ts";
import type { Clock } from "../../../ports/runtime.ts";
import { type Credential, type Credentials, credential } from "./credentials.ts";
import { headerName, headerValue } from "./headers.ts";
import { type OAuth2Auth, TokenCredentials } from "./oauth2.ts";

/** `destinations.<name>.auth` (spec, "HTTP destination auth"). */
export type HttpAuth =
  | { readonly kind: "basic"; readonly username: string; readonly password: Secret }
  | { readonly kind: "header"; readonly headerName: string; readonly headerValue: Secret }
  | OAuth2Auth;

/**
 * Makes the credentials of a destination.
 *
 * @param timeoutMs longest time for a token request
 * @throws PublishError `header_invalid` when a configured value cannot be sent in a header
 */
export function createCredentials(
  auth: HttpAuth,
  environment: { readonly clock: Clock; readonly connect: buildConnector.connector; readonly timeoutMs: number },
): Credentials {
  switch (auth.kind) {
    case "basic": {
      const password = auth.password.reveal();
      const encoded = Buffer.from(`${auth.username}:${password}`, "utf8").toString("base64");
      return fixed(credential("authorization", `Basic ${encoded}`, [encoded, password]));
    }
    case "header": {
      const value = auth.headerValue.reveal();
      const name = headerName(auth.headerName);
      // `ApiKey abc`: a receiver that complains about the key names it without the scheme.
      return fixed(credential(name.toLowerCase(), headerValue(name, value), [value, value.replace(/^\S+\s+/, "")]));
    }
    case "oauth2":
      return new TokenCredentials(auth, environment);
    default:
      return auth satisfies never;
  }
}

function fixed(sent: Credential): Credentials {
  return {
    current: () => sent,
    fetch: async () => sent,
    refused: () => false,
    close: async () => {},
  };
}
