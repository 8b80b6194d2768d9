import { mkdirSync, readFileSync, renameSync, symlinkSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "@jest/globals";
import { Secret } from "../../../src/model/secret.ts";
import { SecretFiles } from "../../../src/runtime/secretFiles.ts";
import { recordedLog } from "./recordedLog.ts";

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), "svc-secrets-"));
});
afterEach(() => rm(folder, { recursive: true }));

let swaps = 0;
/** Replaces all files at once, as Kubernetes does: a link leads to their folder. */
function swap(values: Readonly<Record<string, string>>): void {
  const name = `v${swaps++}`;
  mkdirSync(path.join(folder, name));
  for (const [file, value] of Object.entries(values)) writeFileSync(path.join(folder, name, file), value);
  symlinkSync(name, path.join(folder, "next"));
  renameSync(path.join(folder, "next"), path.join(folder, "data"));
}

type FileSecret = Secret & { readonly file: string };
const secretIn = (name: string, value: string) => new Secret(value, path.join(folder, "data", name)) as FileSecret;

function watch(secrets: readonly FileSecret[], read = (file: string) => readFileSync(file, "utf8")) {
  const { log, lines } = recordedLog();
  return { files: new SecretFiles({ secrets, read, masker: { add: () => () => {} }, log }), lines };
}

describe("a swap of several files", () => {
  const values = (...secrets: readonly Secret[]) => secrets.map((secret) => secret.reveal());

  test("leaves no moment at which a value that both versions have is in no secret", async () => {
    swap({ new: "A", old: "Z" });
    const [fresh, former] = [secretIn("new", "A"), secretIn("old", "Z")];
    const { files } = watch([fresh, former]);
    const seen: (readonly string[])[] = [];
    // Requests are verified between two turns of the event loop.
    for (const secret of [fresh, former]) {
      secret.onRenew(() => queueMicrotask(() => seen.push(values(fresh, former))));
    }
    swap({ new: "B", old: "A" });
    await files.look();
    expect(seen).toEqual([
      ["B", "A"],
      ["B", "A"],
    ]);
  });

  test("that comes between two reads is taken as a whole, at the next look", async () => {
    swap({ new: "A", old: "Z" });
    const [former, fresh] = [secretIn("old", "Z"), secretIn("new", "A")];
    let isSwapped = false;
    for (const secret of [former, fresh]) secret.onRenew(() => {});
    const { files, lines } = watch([former, fresh], (file) => {
      const value = readFileSync(file, "utf8");
      if (!isSwapped) swap({ new: "B", old: "A" });
      isSwapped = true;
      return value;
    });
    await files.look();
    expect(values(fresh, former)).toEqual(["A", "Z"]);
    await files.look();
    expect(values(fresh, former)).toEqual(["B", "A"]);
    expect(lines.map(({ level }) => level)).toEqual(["info", "info"]);
  });

  test("with a value that cannot be used changes the other secrets alone", async () => {
    swap({ one: "A", two: "B", three: "C" });
    const [one, two, three] = [secretIn("one", "A"), secretIn("two", "B"), secretIn("three", "C")];
    const sharing = secretIn("one", "A");
    sharing.onRenew(() => {
      if (sharing.reveal() === "bad") throw new Error("it is bad");
    });
    const { files, lines } = watch([one, sharing, two, three]);
    swap({ one: "bad", two: "B2", three: "" });
    await files.look();
    await files.look();
    expect(values(one, sharing, two, three)).toEqual(["A", "A", "B2", "C"]);
    const warned = lines.filter(({ level }) => level === "warn").map(({ fields }) => fields);
    expect(warned).toEqual([
      { file: one.file, reason: "it is bad" },
      { file: three.file, reason: "it is empty" },
    ]);
    swap({ one: "A3", two: "B2", three: "C3" });
    await files.look();
    expect(values(one, sharing, two, three)).toEqual(["A3", "A3", "B2", "C3"]);
  });
});

test("the log says of each file whether its new value is in use", async () => {
  swap({ token: "A", password: "A", both: "A" });
  const followed = [secretIn("token", "A"), secretIn("both", "A")];
  for (const secret of followed) secret.onRenew(() => {});
  const { files, lines } = watch([...followed, secretIn("password", "A"), secretIn("both", "A")]);
  swap({ token: "B", password: "B", both: "B" });
  await files.look();
  const inUse = "a secret file has changed: its new value is in use";
  const kept =
    "a secret file has changed: what reads it at startup keeps the former value until you restart the process";
  expect(lines.map(({ fields, message }) => [path.basename(String(fields.file)), message])).toEqual([
    ["token", inUse],
    ["both", inUse],
    ["both", kept],
    ["password", kept],
  ]);
});
