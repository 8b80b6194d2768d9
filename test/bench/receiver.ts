import { createServer } from "node:net";
import { createInterface } from "node:readline";

/**
 * The cheapest receiver there can be, as a process of its own: answers every request on a keep-alive connection with 204 as soon
 * as its last byte is in. It parses nothing but `content-length`. Prints its port, then the number of requests so far for each input line.
 */
const ANSWER = Buffer.from("HTTP/1.1 204 No Content\r\n\r\n");
const END_OF_HEAD = Buffer.from("\r\n\r\n");
let received = 0;

const server = createServer((socket) => {
  socket.setNoDelay(true);
  let pending: Buffer = Buffer.alloc(0);
  socket.on("data", (chunk) => {
    pending = pending.length === 0 ? chunk : Buffer.concat([pending, chunk]);
    for (;;) {
      const end = pending.indexOf(END_OF_HEAD);
      if (end < 0) return;
      const head = pending.toString("latin1", 0, end);
      const length = Number(/\r\ncontent-length: *(\d+)/i.exec(head)?.[1] ?? 0);
      const total = end + END_OF_HEAD.length + length;
      if (pending.length < total) return;
      pending = pending.subarray(total);
      received += 1;
      socket.write(ANSWER);
    }
  });
  socket.on("error", () => socket.destroy());
});
server.listen(0, "127.0.0.1", () => {
  const address = server.address();
  process.stdout.write(`${typeof address === "object" && address !== null ? address.port : 0}\n`);
});
createInterface({ input: process.stdin }).on("line", () => process.stdout.write(`${received}\n`));
process.on("SIGTERM", () => process.exit(0));
