// The receiver of the sample in deploy/compose.yml: takes every POST, and prints a line for each, with its body and its origin.
import { createServer } from "node:http";

const server = createServer(async (request, response) => {
  if (request.method !== "POST") {
    response.end("the receiver is here\n");
    return;
  }
  const chunks = [];
  try {
    for await (const chunk of request) chunks.push(chunk);
  } catch {
    return; // The sender broke off; it sends again.
  }
  const { "x-source": source, "x-message-id": id } = request.headers;
  console.log(`delivered ${request.url} from ${source} message ${id} ${Buffer.concat(chunks)}`);
  response.writeHead(204).end();
});

// The address of the container on every network; tests ask for a port of their own.
server.listen(Number(process.env.RECEIVER_PORT ?? 8081), () =>
  console.log(`listening on port ${server.address().port}`),
);

// Process 1 of a container has no default action for signals.
for (const signal of ["SIGTERM", "SIGINT"]) {
  process.on(signal, () => {
    server.close();
    server.closeAllConnections();
  });
}
