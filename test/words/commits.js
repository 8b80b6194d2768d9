import { execFileSync } from "node:child_process";
import lint from "@commitlint/lint";
import config from "../../.commitlintrc.js";

/** Checks the subjects of the commits since the style was agreed, as far as the history is here. */

const SINCE = "2026-11-29T06:00:00Z";
const [{ rules }] = config.plugins;
const log = execFileSync("git", ["log", `--since=${SINCE}`, "--no-merges", "--format=%h %s"], { encoding: "utf8" });
for (const line of log.split("\n").filter(Boolean)) {
  const [hash, ...subject] = line.split(" ");
  const { errors } = await lint(subject.join(" "), config.rules, {
    plugins: { own: { rules } },
    ...config.parserPreset,
  });
  for (const { message } of errors) console.error(`commit ${hash} "${subject.join(" ")}": ${message}`);
  if (errors.length > 0) process.exitCode = 1;
}
