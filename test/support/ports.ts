/** A TCP port of 127.0.0.1 that nobody listens on at the moment. Prefer listening on port 0 where the code under test allows it. */
export { freePort } from "../../src/dev/embeddedPostgres.ts";
