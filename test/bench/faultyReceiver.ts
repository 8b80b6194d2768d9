import { type FaultyAnswer, startFaultyReceiver } from "../support/faultyReceiver.ts";

/** A receiver that answers as its argument says, as a process of its own. Prints its port. */
const { port } = await startFaultyReceiver(process.argv[2] as FaultyAnswer);
process.stdout.write(`${port}\n`);
process.on("SIGTERM", () => process.exit(0));
