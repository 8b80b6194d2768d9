import type { InboundAuth } from "../adapters/sources/http/schema.ts";
import type { Infer } from "../model/schema.ts";
import type { Secret } from "../model/secret.ts";
import type { DatabaseTarget } from "./jdbc/target.ts";
import type { transformSchema } from "./schema/blocks.ts";
import type { configSchema } from "./schema/index.ts";
import type { TARGET_DEFAULTS } from "./schema/sections.ts";

/** The configuration as the schema describes it: every default filled in that depends on no other key. */
export type DeclaredConfig = Infer<typeof configSchema>;

/** A block whose `auth` has all its keys. */
type Authenticated<T> = Omit<T, "auth"> & { readonly auth?: InboundAuth };

export type TransformConfig = Infer<typeof transformSchema>;

export type DestinationConfig = DeclaredConfig["destinations"][string];

type DeclaredRoute = DeclaredConfig["routes"][number];
type ListedDestination = NonNullable<DeclaredRoute["destinations"]>[number];
/** A route to several destinations, which have all keys but the pattern. */
type ListRoute = Pick<DeclaredRoute, "topicPattern"> & {
  readonly destination?: undefined;
  readonly destinations: readonly ListedDestination[];
};
type SingleRoute = Omit<DeclaredRoute, "destinations"> &
  Pick<ListedDestination, keyof typeof TARGET_DEFAULTS> & {
    readonly destination: string;
    readonly destinations?: undefined;
  };
export type RouteConfig = SingleRoute | ListRoute;

/** A destination of a route, with what the route says of it. */
export interface RouteTarget extends Omit<ListedDestination, "name"> {
  readonly destination: string;
  /** `routes[0]`, or `routes[0].destinations[1]`. */
  readonly keyPath: string;
}

type DeclaredSource = DeclaredConfig["sources"][string];
type DeclaredHttpSource = Extract<DeclaredSource, { readonly kind: "http" }>;
type HttpSourceEntry = Authenticated<DeclaredHttpSource>;
export type SourceConfig = Exclude<DeclaredSource, DeclaredHttpSource> | HttpSourceEntry;

type DatabaseConfig = Omit<DeclaredConfig["database"], "cells"> & {
  /** `url`, parsed. */
  readonly target: DatabaseTarget;
  /** Empty without cells. */
  readonly cells: readonly CellConfig[];
};

export type CellConfig = DeclaredConfig["database"]["cells"][number] & { readonly target: DatabaseTarget };

type DeclaredCapture = DeclaredConfig["outbox"]["capture"];
/** The complete target of the capture's connection. */
type CaptureConnection = Omit<DeclaredCapture["connection"], "port"> & {
  readonly hostname: string;
  /** Undefined for a SQL Server instance whose port only the browser service knows. */
  readonly port: number | undefined;
  readonly database: string;
  readonly username: string;
  readonly password: Secret;
};
export type CaptureConfig = Omit<DeclaredCapture, "connection" | "schema"> & {
  readonly connection: CaptureConnection;
  readonly schema: string;
};

type OutboxConfig = Omit<DeclaredConfig["outbox"], "capture"> & { readonly capture: CaptureConfig };
type RelayConfig = DeclaredConfig["inbox"]["relay"] & { readonly maxAttempts: number };
type PullConfig = Authenticated<DeclaredConfig["inbox"]["pull"]>;
type InboxConfig = Omit<DeclaredConfig["inbox"], "relay" | "pull"> & {
  readonly relay: RelayConfig;
  readonly pull: PullConfig;
};
type AdminConfig = Authenticated<DeclaredConfig["admin"]>;

/** The loaded configuration: checked, complete, deeply frozen. Keys are those of the specification; times are ms. */
export type Config = Omit<DeclaredConfig, "database" | "outbox" | "inbox" | "admin" | "routes" | "sources"> & {
  readonly database: DatabaseConfig;
  readonly outbox: OutboxConfig;
  readonly inbox: InboxConfig;
  readonly admin: AdminConfig;
  readonly routes: readonly RouteConfig[];
  readonly sources: Readonly<Record<string, SourceConfig>>;
};
