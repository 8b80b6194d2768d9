import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { ConfigError, type ConfigProblem } from "../../../model/errors.ts";
import type { Log } from "../../../ports/runtime.ts";
import type { CheckedTables, SchemaNeeds } from "../../../ports/store.ts";
import type { MissingColumns, TableNames } from "./names.ts";

export interface CheckedTable {
  readonly which: "inbox" | "outbox";
  /** Quoted, and qualified if the configuration names a schema. */
  readonly name: string;
}

export interface FoundColumn {
  /** The name of its type, or of the type below a domain or an alias; `enum` for every enumeration. */
  readonly type: string;
  readonly nullable: boolean;
  readonly length: number | null;
  /** Digits of the fraction of a second; null if it is no time, or the database has one scale. */
  readonly scale?: number | null;
  /** Of a text; null if the database does not tell. */
  readonly collation?: string | null;
}

export interface Obstacle {
  readonly kind: keyof typeof OBSTACLES;
  readonly name: string;
}

const OBSTACLES = {
  view: () => "is not a table, and the service locks and changes rows: name the table behind it",
  rule: (name: string) =>
    `has the rule ${name}, which rewrites statements of the service: use a trigger that returns the row`,
  trigger: (name: string) =>
    `has the trigger ${name}, which runs instead of statements of the service: use an AFTER trigger`,
  generated: (name: string) => `has the column ${name}, whose values the database generates and the service writes`,
  policy: () =>
    "has row level security that is active for this user, and hidden rows would wait for ever: give the user BYPASSRLS",
} as const;

/** What a column must be for the statements to work, and how the bundled table has it. */
export interface ColumnRule {
  /** Types that every statement works with. */
  readonly accepted: readonly string[];
  readonly definition: string;
  /** The default alone; undefined for none. */
  readonly fallback?: string;
  /** True if no statement would see a row with NULL, or find it again. */
  readonly notNull?: boolean;
  /** Characters of the longest text that the service writes there and compares. */
  readonly leastLength?: number;
  readonly leastScale?: number;
  /** The only collation that every statement works with. */
  readonly collation?: string;
  /** An owner's table may do without it. */
  readonly isOptional?: boolean;
}

/** Characters of the longest `last_error`: a reason, who discarded the row and why, and the reason before it. */
export const LONGEST_ERROR = 5000;

export interface Remedies {
  add(rule: ColumnRule, column: string): string;
  /** @param found the column */
  allowNull(column: string, found: FoundColumn | undefined): string;
  /** Gives a column the type of a rule that has a scale or a collation. */
  change?(column: string, rule: ColumnRule, found: FoundColumn): string;
}

export interface SchemaDialect {
  readonly rules: {
    readonly [Which in CheckedTable["which"]]: Readonly<Record<keyof TableNames[Which], ColumnRule>>;
  };
  quote(identifier: string): string;
  /**
   * The settings of the user's sessions with which statements do not work.
   *
   * @throws ConfigError if it is another engine
   */
  settingProblems?(): Promise<readonly ConfigProblem[]>;
  /** The columns of a table by name; undefined without a table. */
  columns(table: CheckedTable, names: readonly string[]): Promise<ReadonlyMap<string, FoundColumn> | undefined>;
  indexes(table: CheckedTable, names: readonly string[]): Promise<readonly FoundIndex[]>;
  /** @param columns the columns that statements write */
  obstacles(table: CheckedTable, columns: readonly string[]): Promise<readonly Obstacle[]>;
  remedies(table: CheckedTable): Remedies;
  /** What `ALTER TABLE ... ADD` takes. */
  readonly unique: string;
  /** What happens if no index begins with the id; undefined if no statement works. */
  readonly withoutIdIndex: string | undefined;
  /** Times of the inbox by which the relay looks for rows. */
  readonly relayIndexes: readonly ("createdAt" | "scheduledAt")[];
}

export class TableCheck {
  readonly #dialect: SchemaDialect;
  readonly #names: TableNames;
  readonly #log: Log;
  missing: MissingColumns = { inbox: {}, outbox: {} };
  /** The statement that lets the payload of a delivery be NULL; undefined if it may be. */
  #payloadRemedy: string | undefined;

  /** @param names the plain (not yet quoted) names */
  constructor(dialect: SchemaDialect, names: TableNames, log: Log) {
    this.#dialect = dialect;
    this.#names = names;
    this.#log = log;
  }

  async check(tables: CheckedTables | undefined, needs: SchemaNeeds): Promise<void> {
    const checked = tables ?? ["inbox", "outbox"];
    const ofSettings = (await this.#dialect.settingProblems?.()) ?? [];
    const ofTables = await Promise.all([
      checked.includes("inbox") ? this.#inboxProblems() : [],
      checked.includes("outbox") ? this.#outboxProblems(checked.includes("inbox")) : [],
    ]);
    const ofExpiry = needs.expiry === true ? this.#expiryProblems() : [];
    const ofLists = needs.lists === true && checked.includes("outbox") ? this.#listProblems() : [];
    const all = [...ofSettings, ...ofTables.flat(), ...ofExpiry, ...ofLists];
    if (all.length > 0) throw new ConfigError(all);
  }

  table(which: CheckedTable["which"]): CheckedTable {
    const { schema } = this.#names;
    const { quote } = this.#dialect;
    const name = quote(this.#names[`${which}Table`]);
    return { which, name: schema === undefined ? name : `${quote(schema)}.${name}` };
  }

  #columnNames({ which }: CheckedTable): readonly string[] {
    return Object.values<string | null>(this.#names[which]).filter((name) => name !== null);
  }

  /** @param unwritten keys of columns that no statement of this process writes */
  async #problems(
    table: CheckedTable,
    found: ReadonlyMap<string, FoundColumn>,
    unwritten: readonly string[],
  ): Promise<readonly ConfigProblem[]> {
    const names: Readonly<Record<string, string | null>> = this.#names[table.which];
    const rules: Readonly<Record<string, ColumnRule>> = this.#dialect.rules[table.which];
    const written = Object.entries(names).flatMap(([key, name]) =>
      name === null || unwritten.includes(key) ? [] : [name],
    );
    const obstacles = await this.#dialect.obstacles(table, written);
    return [
      ...columnProblems(table, names, found, rules, this.#dialect.remedies(table)),
      ...obstacles.map(({ kind, name }) => ({
        path: `database.${table.which}TableName`,
        message: `the table ${table.name} ${OBSTACLES[kind](name)}`,
      })),
    ];
  }

  #expiryProblems(): readonly ConfigProblem[] {
    return (["inbox", "outbox"] as const).flatMap((which) => {
      const remedy = this.missing[which].expiresAt;
      if (remedy === undefined) return [];
      const message = `the table ${this.table(which).name} has no column for the time after which a message expires, and a source sets it (timeToLive, expiresAtPath or expiresAtHeader): run \`svc migrate\`, or add it with\n      ${remedy}`;
      return [{ path: `database.columnMapping.${which}.expiresAt`, message }];
    });
  }

  #listProblems(): readonly ConfigProblem[] {
    const remedies = new Set([
      this.missing.outbox.destination,
      this.missing.outbox.messageSequence,
      this.#payloadRemedy,
    ]);
    const missing = [...remedies].filter((remedy) => remedy !== undefined);
    if (missing.length === 0) return [];
    const message = `the table ${this.table("outbox").name} cannot hold the deliveries of a message with several destinations, and a route has a list of these: run \`svc migrate\`, or\n      ${missing.join("\n      ")}`;
    return [{ path: "database.columnMapping.outbox.messageSequence", message }];
  }

  #optionalRemedies(table: CheckedTable, found: ReadonlyMap<string, FoundColumn>): Readonly<Record<string, string>> {
    const rules: Readonly<Record<string, ColumnRule>> = this.#dialect.rules[table.which];
    const names: Readonly<Record<string, string | null>> = this.#names[table.which];
    const remedies = Object.entries(rules).flatMap(([key, rule]) => {
      const column = names[key] ?? null;
      if (rule.isOptional !== true || column === null || found.has(column)) return [];
      return [[key, this.#dialect.remedies(table).add(rule, column)]];
    });
    const missing: Readonly<Record<string, string>> = Object.fromEntries(remedies);
    // Without the hash of the routes every destination would count as pinned: both are used, or none.
    // Likewise a delivery needs its message.
    const together = (...keys: readonly string[]): Readonly<Record<string, string>> => {
      const remedy = keys.flatMap((key) => missing[key] ?? []).join(" ");
      return remedy === "" ? {} : Object.fromEntries(keys.map((key) => [key, remedy]));
    };
    const all = { ...missing, ...together("destination", "routes"), ...together("messageSequence", "expandedTo") };
    // No statement knows deliveries without their destination.
    const { destination } = all as Readonly<Record<string, string | undefined>>;
    return destination === undefined ? all : { messageSequence: destination, expandedTo: destination, ...all };
  }

  async #inboxProblems(): Promise<readonly ConfigProblem[]> {
    const table = this.table("inbox");
    const found = await this.#dialect.columns(table, this.#columnNames(table));
    if (found === undefined) return [missingTable(table)];
    const problems = await this.#problems(table, found, []);
    if (problems.length > 0) return problems;
    this.missing = { ...this.missing, inbox: this.#optionalRemedies(table, found) };
    const { id, source, idempotencyKey, state } = this.#names.inbox;
    const indexes = await this.#dialect.indexes(table, this.#columnNames(table));
    const withoutId = this.#checkId(table, id, indexes);
    for (const time of this.#dialect.relayIndexes) this.#checkIndex(table, indexes, this.#names.inbox[time], state);
    if (hasUniqueKey(indexes, source, idempotencyKey)) return withoutId;
    const remedy = this.#addUnique(table, source, idempotencyKey);
    const message = `the table ${table.name} has no unique key on exactly the source and the idempotency key, by which a message that is received twice is stored once: add it with\n      ${remedy}`;
    return [...withoutId, { path: "database.inboxTableName", message }];
  }

  async #outboxProblems(isRelayedInto: boolean): Promise<readonly ConfigProblem[]> {
    const table = this.table("outbox");
    const found = await this.#dialect.columns(table, this.#columnNames(table));
    if (found === undefined) return [missingTable(table)];
    const unwritten = isRelayedInto ? NEVER_WRITTEN : [...NEVER_WRITTEN, ...WRITTEN_BY_RELAY];
    const problems = await this.#problems(table, found, unwritten);
    if (problems.length > 0) return problems;
    this.missing = { ...this.missing, outbox: this.#optionalRemedies(table, found) };
    const { payload } = this.#names.outbox;
    const isNullable = found.get(payload)?.nullable === true;
    this.#payloadRemedy = isNullable ? undefined : this.#dialect.remedies(table).allowNull(payload, found.get(payload));
    const { id, sequence, state, key, destination } = this.#names.outbox;
    const indexes = await this.#dialect.indexes(table, this.#columnNames(table));
    const withoutId = this.#checkId(table, id, indexes);
    const remedy = this.missing.outbox.destination;
    if (remedy !== undefined) this.#log.warn({ remedy }, ONE_QUEUE);
    const columns = [sequence, key, ...(destination === null || remedy !== undefined ? [] : [destination])];
    for (const column of columns) this.#checkIndex(table, indexes, column, state);
    return withoutId;
  }

  #checkId(table: CheckedTable, id: string, indexes: readonly FoundIndex[]): readonly ConfigProblem[] {
    if (indexes.some(({ columns: [first] }) => first === id)) return [];
    const remedy = this.#addUnique(table, id);
    const { withoutIdIndex } = this.#dialect;
    if (withoutIdIndex === undefined) {
      const message = `the table ${table.name} has no key on its id, by which statements look rows up: add it with\n      ${remedy}`;
      return [{ path: `database.${table.which}TableName`, message }];
    }
    this.#log.warn({ remedy }, `the ${table.which} table has no key on its id: ${withoutIdIndex}`);
    return [];
  }

  #checkIndex({ which }: CheckedTable, indexes: readonly FoundIndex[], column: string, state: string): void {
    // It comes first, or right behind the state.
    if (indexes.some(({ columns: [first, second] }) => first === column || (first === state && second === column)))
      return;
    this.#log.warn(
      { column },
      `the ${which} table has no index that begins with this column: each search for work reads the whole table. Make the indexes of the bundled migrations`,
    );
  }

  #addUnique(table: CheckedTable, ...columns: readonly string[]): string {
    const { quote, unique } = this.#dialect;
    return `ALTER TABLE ${table.name} ADD ${unique} (${columns.map(quote).join(", ")});`;
  }
}

const ONE_QUEUE =
  "the outbox table has no columns for the destination of a row and for the routes that chose it: all rows are one queue, in which a slow destination can delay the others, and no row can be replayed to another destination";

/** Keys of the outbox's columns that the service does not write. */
const NEVER_WRITTEN = ["sequence", "aggregateType"] as const satisfies readonly (keyof TableNames["outbox"])[];
const WRITTEN_BY_RELAY = [
  "id",
  "topic",
  "key",
  "payload",
  "headers",
  "maxAttempts",
] as const satisfies readonly (keyof TableNames["outbox"])[];

function missingTable({ which, name }: CheckedTable): ConfigProblem {
  const remedy = "run `svc migrate`, set database.migrate: true, or name your own table";
  const without =
    which === "inbox" ? "; the roles poller and retention alone (`svc poller retention`) need no inbox" : "";
  return { path: `database.${which}TableName`, message: `the table ${name} does not exist: ${remedy}${without}` };
}

/**
 * Lists all problems with the columns of a table, to be fixed at once.
 *
 * @param names key of `database.columnMapping` to the column's name
 * @param found the columns that exist, by name
 */
function columnProblems<K extends string>(
  table: CheckedTable,
  names: Readonly<Record<K, string | null>>,
  found: ReadonlyMap<string, FoundColumn>,
  rules: Readonly<Record<K, ColumnRule>>,
  remedies: Remedies,
): readonly ConfigProblem[] {
  return (Object.entries(names) as [K, string | null][]).flatMap(([key, column]) => {
    if (column === null) return [];
    const path = `database.columnMapping.${table.which}.${key}`;
    const problem = (what: string) => ({ path, message: `the table ${table.name} ${what}` });
    const is = found.get(column);
    const rule = rules[key];
    if (is === undefined) {
      if (rule.isOptional === true) return [];
      const remedy = remedies.add(rule, column);
      return [
        problem(`has no column "${column}": map the key to the column you have, or add it with\n      ${remedy}`),
      ];
    }
    if (!rule.accepted.includes(is.type)) {
      const accepted = rule.accepted.join(", ");
      return [
        problem(`has the column "${column}" of type ${is.type}, which the service cannot work with: use ${accepted}`),
      ];
    }
    if (is.length !== null && is.length < (rule.leastLength ?? 0)) {
      return [problem(`has the column "${column}" for ${is.length} characters: give it ${rule.leastLength} or more`)];
    }
    const changed = (what: string) =>
      problem(
        `${what}: drop its default and its indexes for the time of the change, and use\n      ${remedies.change?.(column, rule, is)}`,
      );
    if ((is.scale ?? null) !== null && Number(is.scale) < (rule.leastScale ?? 0)) {
      return [
        changed(
          `has the column "${column}" with a scale of ${is.scale}, and rows a microsecond apart would lose their order`,
        ),
      ];
    }
    if (rule.collation !== undefined && is.collation !== rule.collation) {
      return [
        changed(
          `has the column "${column}" with the collation ${is.collation}, by which different texts may be the same`,
        ),
      ];
    }
    if (is.nullable && rule.notNull === true) {
      return [problem(`allows NULL in the column "${column}": a row without it could never be delivered`)];
    }
    return [];
  });
}

/** The columns of its key in order, null for an expression. */
interface FoundIndex {
  readonly columns: readonly (string | null)[];
  readonly unique: boolean;
  readonly whole: boolean;
}

/** Whether a key of exactly these columns, in any order, holds for every row. */
function hasUniqueKey(indexes: readonly FoundIndex[], ...columns: readonly string[]): boolean {
  return indexes.some(
    (index) =>
      index.unique &&
      index.whole &&
      index.columns.length === columns.length &&
      columns.every((column) => index.columns.includes(column)),
  );
}

/** The folder of the bundled migrations: next to `src`, or above `dist`. @throws Error when there is none */
export function migrationsDirectory(database: "postgresql" | "sqlserver"): string {
  for (let folder = dirname(fileURLToPath(import.meta.url)); ; folder = dirname(folder)) {
    const candidate = join(folder, "migrations", database);
    if (existsSync(candidate)) return candidate;
    if (dirname(folder) === folder)
      throw new Error("the bundled migrations are missing: the installation is incomplete");
  }
}
