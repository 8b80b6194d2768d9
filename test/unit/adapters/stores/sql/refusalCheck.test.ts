import { describe, expect, test } from "@jest/globals";
import { RefusalCheck, type Trial, type Tried } from "../../../../../src/adapters/stores/sql/refusalCheck.ts";
import { tryInParts } from "../../../../../src/adapters/stores/sql/rows.ts";
import { StoreError, type StoreErrorCode } from "../../../../../src/model/errors.ts";

/** Numbers as rows: a table takes those for which it has no refusal. */
class Table implements Trial<number, readonly number[]> {
  readonly refusals = new Map<number, StoreErrorCode>();
  /** Of the row that passed last; undefined for none. */
  last: "passes" | StoreErrorCode | undefined = "passes";
  /** What commits refuse, and nothing else. */
  readonly atCommit = new Set<number>();
  tries = 0;

  readonly insert = async (rows: readonly number[]): Promise<readonly number[]> => {
    this.tries += 1;
    for (const row of rows) if (this.atCommit.has(row)) throw new StoreError("data", `commit of ${row}`);
    for (const row of rows) await this.again(row);
    return rows;
  };

  async again(row: number): Promise<void> {
    const code = this.refusals.get(row);
    if (code !== undefined) throw new StoreError(code, `not ${row}`);
  }

  proves(result: readonly number[]): boolean {
    return result.length > 0;
  }

  async accepted(): Promise<boolean> {
    if (this.last === undefined || this.last === "passes") return this.last !== undefined;
    throw new StoreError(this.last, "not the last one");
  }
}

const range = (length: number) => Array.from({ length }, (_, n) => n);

async function judge(table: Table, rows: readonly number[], check = new RefusalCheck()) {
  const passed: number[] = [];
  const blamed: number[] = [];
  const judged: AsyncGenerator<Tried<number, readonly number[]>> = check.of(tryInParts(rows, table.insert), table);
  for await (const tried of judged) {
    if (tried.isRefused) blamed.push(tried.item);
    else passed.push(...tried.result);
  }
  return { passed, blamed };
}

const refusing = (...rows: readonly number[]): Table => {
  const table = new Table();
  for (const row of rows) table.refusals.set(row, "data");
  return table;
};

describe("refused rows", () => {
  test("are to blame while others of their batch pass, whatever became of the row that passed last", async () => {
    const table = refusing(0, 5);
    table.last = undefined;
    expect(await judge(table, range(8))).toEqual({ passed: [1, 2, 3, 4, 6, 7], blamed: [0, 5] });
  });

  test("that are alone are to blame while the row that passed last passes, or meets only itself", async () => {
    for (const last of ["passes", "duplicate"] as const) {
      const table = refusing(0);
      table.last = last;
      expect(await judge(table, [0])).toEqual({ passed: [], blamed: [0] });
    }
  });

  test.each(["data", "refused", "busy", undefined] as const)(
    "are not to blame when the row that passed last is %s, and few of many are tried",
    async (last) => {
      const table = refusing(...range(1000));
      table.last = last;
      await expect(judge(table, range(1000))).rejects.toMatchObject({ code: "schema" });
      expect(table.tries).toBeLessThan(220);
    },
  );

  test.each(["data", undefined] as const)(
    "behind rows that pass are judged by the row that passed last: %s",
    async (last) => {
      const table = refusing(4, 5, 6, 7);
      table.last = last;
      const judged = judge(table, range(8));
      // Without any, those in front of them must do.
      if (last === undefined) expect(await judged).toEqual({ passed: [0, 1, 2, 3], blamed: [4, 5, 6, 7] });
      else await expect(judged).rejects.toMatchObject({ code: "schema" });
    },
  );

  test("are not to blame for what commits alone refuse", async () => {
    const table = new Table();
    table.atCommit.add(3);
    await expect(judge(table, range(8))).rejects.toThrow(/commit of 3; the same row passes.*not to blame/);
  });

  test("that may pass later are nobody's fault: they are given back without a verdict", async () => {
    const table = new Table();
    table.last = undefined;
    table.refusals.set(0, "busy");
    expect(await judge(table, [0])).toEqual({ passed: [], blamed: [0] });
  });
});

describe("the check of a table", () => {
  test("fails while the row that passed last is refused, until that or a batch passes", async () => {
    const [table, check] = [refusing(0), new RefusalCheck()];
    table.last = "data";
    for (const cure of [() => (table.last = "passes"), () => check.passed()]) {
      table.last = "data";
      await expect(judge(table, [0], check)).rejects.toThrow("not 0");
      await expect(check.check()).rejects.toThrow("not 0");
      cure();
      await check.check();
    }
  });

  test("passes without a row that has passed: no other could show that the table takes rows again", async () => {
    const [table, check] = [refusing(0), new RefusalCheck()];
    table.last = undefined;
    await expect(judge(table, [0], check)).rejects.toThrow("not 0");
    await check.check();
  });
});
