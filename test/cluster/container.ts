import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, mkdirSync } from "node:fs";
import { pathOf } from "../support/repository.ts";

/** A pod's network: a namespace of its own on the bridge of all pods. */
export interface PodNetwork {
  readonly name: string;
  readonly address: string;
  remove(): void;
}

/** The machine, as pods reach it: receivers and proxies of the tests listen here. */
export const HOST_ADDRESS = "10.77.0.1";
const BRIDGE = "pods";

/** Makes the bridge of all pods. @throws Error where this process may not: test/cluster/run gives it namespaces in which it may */
export function makeBridge(): void {
  ip(`link add ${BRIDGE} type bridge`);
  ip(`addr add ${HOST_ADDRESS}/16 dev ${BRIDGE}`);
  ip(`link set ${BRIDGE} up`);
}

export function removeBridge(): void {
  ip(`link del ${BRIDGE}`);
}

/** @param number of the pod, from 2 on */
export function makeNetwork(number: number): PodNetwork {
  const name = `pod${number}`;
  const address = `10.77.${number >> 8}.${number & 255}`;
  ip(`netns add ${name}`);
  ip(`link add v${number} type veth peer name eth0 netns ${name}`);
  ip(`link set v${number} master ${BRIDGE} up`);
  ip(`-n ${name} addr add ${address}/16 dev eth0`);
  ip(`-n ${name} link set lo up`);
  ip(`-n ${name} link set eth0 up`);
  return { name, address, remove: () => ip(`netns del ${name}`) };
}

function ip(args: string): void {
  const { status, stderr } = spawnSync("ip", args.split(" "), { encoding: "utf8" });
  if (status !== 0) throw new Error(`ip ${args}: ${stderr}`);
}

/** Something of the machine that a container sees. */
export interface Mount {
  /** A file or a folder. */
  readonly from: string;
  readonly to: string;
  readonly isWritable: boolean;
}

export interface ContainerOptions {
  readonly network: PodNetwork;
  /** The whole command. */
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly mounts: readonly Mount[];
  readonly user: number;
  readonly group: number;
  /** An empty folder of its own. */
  readonly folder: string;
  readonly logFile: string;
}

/** A running container: one process tree. */
export interface RunningContainer {
  readonly exited: Promise<number>;
  kill(signal: "SIGTERM" | "SIGKILL"): void;
}

/** What the image holds beside the operating system. */
const IMAGE = ["dist", "node_modules", "migrations", "package.json"];

/**
 * Starts a command as a container runtime does: in the pod's network, with a root of its own that is read-only but for writable mounts, as an unprivileged user that can
 * gain no rights. The operating system's programs are those of this machine.
 */
export function startContainer(options: ContainerOptions): RunningContainer {
  const { network, command, env, mounts, user, group, folder, logFile } = options;
  mkdirSync(folder, { recursive: true });
  const image = IMAGE.map((name) => ({ from: pathOf(name), to: `/app/${name}`, isWritable: false }));
  const all = [...image, ...mounts].flatMap(({ from, to, isWritable }) => [isWritable ? "rw" : "ro", from, to]);
  const identity = [
    `--reuid=${user}`,
    `--regid=${group}`,
    `--groups=${group}`,
    "--no-new-privs",
    "--bounding-set=-all",
  ];
  const child = spawn(
    "ip",
    [
      ...[
        "netns",
        "exec",
        network.name,
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "bash",
        "-c",
        ROOT,
        "container",
      ],
      ...[folder, String(all.length / 3), ...all, "setpriv", ...identity, ...command],
    ],
    { env: { PATH: process.env.PATH ?? "", ...env }, stdio: ["ignore", "pipe", "pipe"] },
  );
  const log = (chunk: Buffer) => appendFileSync(logFile, chunk);
  child.stdout?.on("data", log);
  child.stderr?.on("data", log);
  return { exited: exitCodeOf(child), kill: (signal) => void child.kill(signal) };
}

/** Makes the root, and becomes the command in it. Arguments: the folder of the root, how many mounts, three words for each, the command. */
const ROOT = `
set -euo pipefail
root=$1
count=$2
shift 2
mount -t tmpfs -o mode=755 tmpfs "$root"
mkdir -p "$root"/{usr,etc,proc,dev}
for name in bin sbin lib lib64; do [ ! -L "/$name" ] || cp -P "/$name" "$root/"; done
place() { # mode from to
  if [ -d "$2" ]; then mkdir -p "$root$3"; else mkdir -p "$(dirname "$root$3")" && touch "$root$3"; fi
  mount --bind "$2" "$root$3"
  [ "$1" = rw ] || mount -o remount,bind,ro "$root$3"
}
place ro /usr /usr
place ro /etc/ssl /etc/ssl
for ((n = 0; n < count; n++)); do
  place "$1" "$2" "$3"
  shift 3
done
mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -o remount,ro "$root"
cd /
exec chroot "$root" "$@"
`;

async function exitCodeOf(child: ChildProcess): Promise<number> {
  const [code, signal] = (await once(child, "close")) as [number | null, NodeJS.Signals | null];
  return code ?? 128 + (signal === "SIGKILL" ? 9 : 15);
}
