import { destinationKind } from "../../../ports/kinds.ts";
import { requestUrl } from "./requestUrl.ts";
import { httpDestinationSchema } from "./schema.ts";

/** Header names are tokens (RFC 9110, section 5.6.2). */
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const OUTSIDE_HEADERS = /[^\t\x20-\x7e\x80-\xff]/;

/** An HTTP destination (spec, "HTTP destination"). */
export const httpDestination = destinationKind({
  schema: httpDestinationSchema,
  check: ({ headers }, when) =>
    when(["headers"], (report) => {
      for (const [name, value] of Object.entries(headers)) {
        if (!TOKEN.test(name)) {
          report.error("headers", `${JSON.stringify(name)} is not a header name: remove spaces and colons`);
        }
        // The value may be a credential: do not show it.
        if (OUTSIDE_HEADERS.test(value))
          report.error(
            "headers",
            `the value of ${JSON.stringify(name)} holds a character that no HTTP header can carry`,
          );
      }
    }),
  address: null,
  routingKey: null,
  explain: ({ baseUrl, path }) => ({ name: "url", text: `POST ${requestUrl(baseUrl, path).href}` }),
  async checkAtStart(path, { baseUrl, auth, allowMetadataAddress }, { blockPrivateAddresses }) {
    const { checkAddresses } = await import("./guard.ts");
    const urls = { baseUrl, ...(auth?.kind === "oauth2" && { "auth.tokenUrl": auth.tokenUrl }) };
    return checkAddresses(path, urls, { blockPrivate: blockPrivateAddresses, allowMetadata: allowMetadataAddress });
  },
  async create(config, { http, concurrency, ...tools }) {
    const { createHttpDestination } = await import("./index.ts");
    return createHttpDestination(config, { ...tools, ...http, connections: concurrency });
  },
});
