import * as schema from "../../../model/described.ts";
import * as answer from "../../openapi/answers.ts";
import type { Admin } from "../operation.ts";

export const showConfig = ({ operation, configText }: Admin) =>
  operation("admin_config", {
    summary: "Show the configuration in effect",
    description: "As `svc config print` shows it: YAML with the origin of each value, secrets masked.",
    answers: [
      answer.json(
        200,
        "The configuration of this process.",
        schema.object({ text: [schema.TEXT, "server:\n  httpPort: 8080  # svc.yml:3\n"] }),
      ),
    ],
    work: async () => ({ text: configText }),
  });
