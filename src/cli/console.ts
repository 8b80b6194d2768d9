import { loadConfig } from "../config/load.ts";
import { BY } from "../core/operations/syntax.ts";
import { createSignInCode } from "../http/console/sessions.ts";
import { type AddCommands, action, FILE_OPTION, operator, optionParser, usageError } from "./io.ts";

interface SignInOptions {
  readonly config?: string;
  readonly by: string;
}

export const addConsoleCommand: AddCommands = (program, io) => {
  const console = program.command("console").description("sign in to the console");
  console
    .command("sign-in")
    .description(
      "print a one-time code for the console: for admin credentials that a browser cannot send, such as hmac",
    )
    .option(...FILE_OPTION)
    .option("--by <name>", "who signs in, for the audit log", optionParser(BY.parse), operator())
    .addHelpText("after", EXAMPLES)
    .action(
      action(({ config: file, by }: SignInOptions, command) => {
        const { auth, insecure } = loadConfig({ env: io.env, file, readFile: io.readFile }).config.admin;
        if (auth === undefined || insecure) usageError(command, NO_SIGN_IN);
        io.stdout.write(`${createSignInCode(auth, by, Date.now())}\n`);
      }),
    );
};

const NO_SIGN_IN = "the console of this configuration needs no sign-in: it has no admin.auth, or admin.insecure";

const EXAMPLES = `
The code is made from admin.auth of the configuration and needs no running service. Each process accepts it once, for two minutes.

Examples:
  svc console sign-in                       paste the code into the page /console
  svc console sign-in --by alice            the audit log then names alice`;
