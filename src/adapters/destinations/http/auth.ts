import type { Secret } from "../../../model/secret.ts";
import type { Credential, Credentials, CredentialsEnvironment } from "./credentials.ts";
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
 * @throws PublishError `header_invalid` when a configured value cannot be sent in a header
 */
export function createCredentials(auth: HttpAuth, environment: CredentialsEnvironment): Credentials {
  const { secrets } = environment;
  switch (auth.kind) {
    case "basic": {
      const password = auth.password.reveal();
      const encoded = Buffer.from(`${auth.username}:${password}`, "utf8").toString("base64");
      secrets.add(encoded);
      secrets.add(password);
      return fixed({ name: "authorization", value: `Basic ${encoded}` });
    }
    case "header": {
      const value = auth.headerValue.reveal();
      const name = headerName(auth.headerName);
      secrets.add(value);
      return fixed({ name: name.toLowerCase(), value: headerValue(name, value) });
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
