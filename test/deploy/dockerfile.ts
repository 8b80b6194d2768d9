import { cpSync, mkdirSync, renameSync, statSync } from "node:fs";
import path from "node:path";

/** As much of a Dockerfile as deploy/Dockerfile has: what it does not have is refused, so that nothing is passed over. */

export interface Instruction {
  readonly name: string;
  /** Without its flags. */
  readonly text: string;
  readonly flags: Readonly<Record<string, string>>;
}

export interface Stage {
  /** Name or number. */
  readonly name: string;
  /** With arguments filled in. */
  readonly image: string;
  readonly instructions: readonly Instruction[];
}

const KNOWN = new Set("ARG COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK LABEL RUN USER WORKDIR".split(" "));

/** @throws Error for an instruction that is not known here, or that stands before the first stage */
export function parseDockerfile(text: string): readonly Stage[] {
  const stages: (Stage & { readonly instructions: Instruction[] })[] = [];
  const defaults = new Map<string, string>();
  for (const instruction of logicalLines(text).map(parseInstruction)) {
    const stage = stages.at(-1);
    if (instruction.name === "FROM") {
      const [image = "", , name = String(stages.length)] = instruction.text.split(/\s+/);
      const filled = image.replace(/\$\{(\w+)\}/g, (_, argument: string) => defaults.get(argument) ?? "");
      stages.push({ name, image: filled, instructions: [] });
    } else if (stage !== undefined) {
      stage.instructions.push(instruction);
    } else if (instruction.name === "ARG") {
      const [name = "", value = ""] = instruction.text.split("=");
      defaults.set(name, value);
    } else {
      throw new Error(`${instruction.name} stands before the first FROM`);
    }
  }
  return stages;
}

/** The texts of a stage's instructions of one kind. */
export function texts(stage: Stage, name: string): readonly string[] {
  return stage.instructions.filter((each) => each.name === name).map(({ text }) => text);
}

/** Lines without comments, with continued ones joined. */
function logicalLines(text: string): readonly string[] {
  const kept = text.split("\n").filter((line) => line.trim() !== "" && !line.trimStart().startsWith("#"));
  return kept
    .join("\n")
    .replace(/\\\n\s*/g, "")
    .split("\n");
}

function parseInstruction(line: string): Instruction {
  const [, name = "", rest = ""] = /^([A-Z]+)\s+(.*)$/.exec(line) ?? [];
  if (!KNOWN.has(name)) throw new Error(`not known here: ${line}`);
  const flags: Record<string, string> = {};
  let text = rest;
  for (let flag = /^--([a-z-]+)=(\S+)\s+/.exec(text); flag !== null; flag = /^--([a-z-]+)=(\S+)\s+/.exec(text)) {
    flags[flag[1] ?? ""] = flag[2] ?? "";
    text = text.slice(flag[0].length);
  }
  return { name, text, flags };
}

export interface Build {
  /** The folder that the build is given. */
  readonly context: string;
  /** The rules of its `.dockerignore`. */
  readonly ignore: string;
  /** An empty folder, to hold the root folder of each stage. */
  readonly folder: string;
  /** Runs a command of RUN in the stage's working folder. */
  readonly run: (command: string, workdir: string) => Promise<unknown>;
}

/**
 * Carries out COPY, RUN and WORKDIR of every stage in their order, each stage in a folder of its own instead of an image.
 *
 * @returns the root folder of the last stage
 * @throws Error of the first command that fails, with its output
 */
export async function build(stages: readonly Stage[], options: Build): Promise<string> {
  const isKept = keptBy(options.ignore);
  const roots = new Map<string, string>();
  let root = options.folder;
  for (const stage of stages) {
    root = path.join(options.folder, stage.name);
    roots.set(stage.name, root);
    let workdir = root;
    for (const { name, text, flags } of stage.instructions) {
      if (name === "WORKDIR") {
        workdir = path.join(root, text);
        mkdirSync(workdir, { recursive: true });
      } else if (name === "COPY") {
        const words = text.split(/\s+/);
        if (flags.from === undefined) refuseIgnored(words.slice(0, -1), isKept);
        if (flags.from === undefined) place(words, options.context, workdir, copy);
        else place(words, rootOf(flags.from, roots), workdir, renameSync);
      } else if (name === "RUN") {
        await options.run(text, workdir);
      }
    }
  }
  return root;
}

function rootOf(stage: string, roots: ReadonlyMap<string, string>): string {
  const root = roots.get(stage);
  if (root === undefined) throw new Error(`COPY from a stage that does not come before it: ${stage}`);
  return root;
}

const copy = (from: string, to: string) => cpSync(from, to, { recursive: true, verbatimSymlinks: true });

/**
 * Files and the contents of folders, into a file, or into a folder when the target ends with a slash.
 *
 * @param put how each comes to its place. What comes from another stage is moved, which costs nothing for ten thousand files: a second instruction that needs
 *   it finds nothing and fails, and so does an instruction whose target holds something already
 */
function place(words: readonly string[], from: string, workdir: string, put: (from: string, to: string) => void): void {
  const target = words.at(-1) ?? "";
  const sources = words.slice(0, -1);
  if (sources.length > 1 && !target.endsWith("/")) throw new Error(`several sources need a folder: ${words.join(" ")}`);
  for (const source of sources) {
    const file = path.join(from, source);
    const name = !statSync(file).isDirectory() && target.endsWith("/") ? path.basename(source) : "";
    put(file, path.join(workdir, target, name));
  }
}

function refuseIgnored(sources: readonly string[], isKept: (file: string) => boolean): void {
  const ignored = sources.filter((source) => !isKept(source));
  if (ignored.length > 0) throw new Error(`.dockerignore leaves out ${ignored.join(", ")}`);
}

/**
 * What the rules of a `.dockerignore` keep: the last rule that fits decides.
 *
 * @throws Error for a rule other than `*` and names in the uppermost folder: those need no more than this
 */
export function keptBy(ignore: string): (file: string) => boolean {
  const lines = ignore.split("\n").map((line) => line.trim());
  const rules = lines.filter((line) => line !== "" && !line.startsWith("#"));
  const strange = rules.filter((rule) => !/^(\*|!?[\w.-]+)$/.test(rule));
  if (strange.length > 0) throw new Error(`not known here: ${strange.join(", ")}`);
  return (file) => {
    const top = file.split("/")[0];
    const rule = rules.filter((each) => each === "*" || each.replace(/^!/, "") === top).at(-1);
    return rule === undefined || rule.startsWith("!");
  };
}
