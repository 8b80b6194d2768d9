import { cellOf } from "../model/cells.ts";
import { ConfigError } from "../model/errors.ts";
import { type AddCommands, action, FILE_OPTION, usageError } from "./io.ts";
import { prepare } from "./run.ts";

export const addCellCommands: AddCommands = (program, io) => {
  program
    .command("cells")
    .description("the cells of this installation (database.cells)")
    .command("of <key>")
    .description("show the cell of a key: an aggregate id, or the idempotency key of a message without one")
    .option(...FILE_OPTION)
    .action(
      action(({ config: file }, command) => {
        const [key = ""] = command.args;
        if (key === "") usageError(command, "the key is empty: no message has that key");
        const { cells } = prepare({ env: io.env, file }).config.database;
        if (cells.length === 0) {
          const message = "there are no cells: everything is in one database";
          throw new ConfigError([{ path: "database.cells", message }]);
        }
        io.stdout.write(`${cells[cellOf(key, cells.length)]?.name}\n`);
      }),
    );
};
