import { type SqlServerCdcOptions, sqlServerCdc } from "../../../../src/adapters/capture/sqlServerCdc.ts";
import type { Endpoint } from "../../../../src/adapters/stores/sqlserver/endpoints.ts";
import { StoreError } from "../../../../src/model/errors.ts";
import { Secret } from "../../../../src/model/secret.ts";
import { systemClock } from "../../../../src/time/clock.ts";
import { recordingLog } from "../../../support/recorders.ts";

export const PASSWORD = "not-for-the-log";

/** A server that nobody answers for. */
const ENDPOINT: Endpoint = {
  host: "127.0.0.1",
  port: 1,
  instance: undefined,
  database: "shop",
  username: "relay",
  password: new Secret(PASSWORD),
  encrypt: true,
  trustServerCertificate: false,
  hostNameInCertificate: undefined,
  multiSubnetFailover: false,
  connectionTimeoutMs: 5000,
  applicationName: "svc",
};

export const OPTIONS: SqlServerCdcOptions = {
  server: ENDPOINT,
  table: { schema: "dbo", name: "outbox", idColumn: "id" },
  clock: systemClock,
  log: recordingLog().log,
};

/** LSN number `n`, as the server writes it. */
export function lsn(n: number): string {
  return `0x${n.toString(16).toUpperCase().padStart(20, "0")}`;
}

type Row = Readonly<Record<string, unknown>>;

/** Answers the statements of the adapter as a server with change data capture would. */
export class ScriptedCdc {
  database: Row = { is_cdc_enabled: true, is_tracked_by_cdc: true, user_name: "relay" };
  instances: Row[] = [{ capture_instance: "dbo_outbox", role_name: null, create_date: new Date(0) }];
  lowest: string | null = lsn(1);
  highest: string | null = lsn(100);
  /** `__$operation`: 1 delete, 2 insert, 3 and 4 update. */
  changes: { readonly lsn: string; readonly operation: 1 | 2 | 3 | 4 }[] = [];
  /** What the next poll fails with. */
  pollFault: StoreError | undefined;
  polled: string[] = [];
  isOpen = false;

  /** @param changed of the options */
  changeLog(changed: Partial<SqlServerCdcOptions> = {}) {
    return sqlServerCdc({ ...OPTIONS, ...changed }, () => {
      this.isOpen = true;
      return {
        run: async ({ name }, values = {}) => this.#answer(name, values),
        close: async () => {
          this.isOpen = false;
        },
      };
    });
  }

  commit(operation: 1 | 2 | 3): void {
    this.highest = lsn(Number(this.highest) + 1);
    this.changes.push({ lsn: this.highest, operation });
  }

  #answer(name: string, values: Readonly<Record<string, unknown>>): readonly Row[] {
    if (name === "capture.database") return [this.database];
    if (name === "capture.instances") return this.instances;
    if (name !== "capture.poll") throw new Error(`no answer is known for the statement "${name}"`);
    this.polled.push(String(values.instance));
    const fault = this.pollFault;
    this.pollFault = undefined;
    if (fault !== undefined) throw fault;
    const { highest, lowest } = this;
    const from = values.position as string | null;
    const isAhead = highest !== null && from !== null && highest > from;
    const inserted = this.changes.filter(
      (change) => isAhead && change.operation === 2 && change.lsn > from && change.lsn <= highest,
    );
    // The driver gives a bigint as text.
    const [count, age] = inserted.length === 0 ? [0, null] : [1, "15"];
    return [{ reached: highest, lowest, inserted: count, age_ms: age }];
  }
}

export const objectUnknown = () => new StoreError("schema", "capture.poll: Invalid object name (error 208)");
