import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";

/** A pooler that keeps prepared statements on its server connection, for every client that comes. */
interface PreparingPooler extends AsyncDisposable {
  readonly host: string;
  readonly port: number;
  /** Clients that have come so far. */
  readonly clients: number;
}

/**
 * Starts a pooler with one server connection, for one client at a time, that behaves as PgBouncer from 1.21 on with `max_prepared_statements`: a statement that
 * some client has prepared is not parsed again for the next one, but answered for the server. The first client logs in to the server; later clients get its
 * answers.
 *
 * @param server whose PostgreSQL needs no TLS
 */
export async function startPreparingPooler(server: {
  readonly host: string;
  readonly port: number;
}): Promise<PreparingPooler> {
  const far = connect(server.port, server.host);
  await once(far, "connect");
  const prepared = new Set<string>();
  /** What the server sent up to its first readiness for a query. */
  const welcome: Buffer[] = [];
  let [isWelcomed, clients] = [false, 0];
  let near: Socket | undefined;
  /** Whose queries the server has not finished: the end of an answer is for nobody else, also if its client has gone. */
  const asking: Socket[] = [];
  const fromServer = messages((message) => {
    if (!isWelcomed && isKept(message)) welcome.push(message);
    (asking[0] ?? near)?.write(message);
    if (typeOf(message) !== "Z") return;
    if (isWelcomed) asking.shift();
    isWelcomed = true;
  });
  far.on("data", fromServer).on("error", () => near?.destroy());

  const listener = createServer((socket) => {
    clients += 1;
    near = socket;
    let hasStarted = false;
    const fromClient = messages((message) => {
      const type = typeOf(message);
      const name = type === "P" ? message.toString("utf8", HEADER, message.indexOf(0, HEADER)) : "";
      if (type === "X") return;
      if (type === "S" || type === "Q") asking.push(socket);
      if (name !== "" && prepared.has(name)) socket.write(PARSE_COMPLETE);
      else far.write(message);
      if (name !== "") prepared.add(name);
    });
    socket.on("error", () => {});
    socket.on("data", (bytes: Buffer) => {
      if (hasStarted) return fromClient(bytes);
      hasStarted = true;
      if (isWelcomed) socket.write(Buffer.concat([LOGGED_IN, ...welcome]));
      else far.write(bytes);
    });
  });
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  return {
    host: "127.0.0.1",
    port: (listener.address() as AddressInfo).port,
    get clients() {
      return clients;
    },
    async [Symbol.asyncDispose]() {
      near?.destroy();
      far.destroy();
      await new Promise((resolve) => listener.close(resolve));
    },
  };
}

/** Of a message after the first: its type, and its length without the type (PostgreSQL documentation, "Message Formats"). */
const HEADER = 5;
const LOGGED_IN = Buffer.from([0x52, 0, 0, 0, 8, 0, 0, 0, 0]);
const PARSE_COMPLETE = Buffer.from([0x31, 0, 0, 0, 4]);

const typeOf = (message: Buffer): string => message.toString("latin1", 0, 1);

/** Whether each client gets it: parameters, the key to cancel, the readiness; not the steps of the login. */
const isKept = (message: Buffer): boolean => ["S", "K", "Z"].includes(typeOf(message));

/** Puts whole messages together from whatever arrives. */
function messages(each: (message: Buffer) => void): (bytes: Buffer) => void {
  let rest = Buffer.alloc(0);
  return (bytes) => {
    rest = Buffer.concat([rest, bytes]);
    while (rest.length >= HEADER && rest.length > rest.readUInt32BE(1)) {
      const end = 1 + rest.readUInt32BE(1);
      each(rest.subarray(0, end));
      rest = rest.subarray(end);
    }
  };
}
