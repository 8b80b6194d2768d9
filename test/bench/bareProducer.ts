import { createInterface } from "node:readline";
import { Pool } from "undici";
import { v7 as uuidv7 } from "uuid";
import { BODY } from "./body.ts";

/**
 * The bare HTTP client as a process of its own. Argument: URL of the receiver. Prints 0; then for an input line `count inFlight` posts `count` 1 kB messages,
 * at most `inFlight` of them waiting for their answer, and prints the ms it took.
 */
const pool = new Pool(process.argv[2] ?? "", { connections: 256, pipelining: 1 });

async function post(count: number, inFlight: number): Promise<void> {
  let next = 0;
  const lane = async () => {
    while (next < count) {
      next += 1;
      const headers = { "content-type": "application/json", "x-message-id": uuidv7() };
      const { statusCode, body } = await pool.request({ method: "POST", path: "/", body: BODY, headers });
      await body.dump();
      if (statusCode >= 300) throw new Error(`status ${statusCode}`);
    }
  };
  await Promise.all(Array.from({ length: inFlight }, lane));
}

process.stdout.write("0\n");
createInterface({ input: process.stdin }).on("line", async (line) => {
  const [count = 0, inFlight = 1] = line.split(" ").map(Number);
  const startedAt = performance.now();
  await post(count, inFlight);
  process.stdout.write(`${performance.now() - startedAt}\n`);
});
process.on("SIGTERM", () => process.exit(0));
