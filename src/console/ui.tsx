import { type ComponentChildren, createContext } from "preact";
import { useContext, useEffect, useId, useRef, useState } from "preact/hooks";
import { post } from "./api.ts";
import { ago, UNKNOWN } from "./format.ts";
import type { Options } from "./live.tsx";
import { type Resource, useResource } from "./resource.ts";
import { link } from "./router.ts";

/** The parts that pages are made of. Texts of the service are children, and so never markup. */

interface Person {
  /** The name given at sign-in, for the audit log. */
  readonly by: string | null;
  /** Shows a result and has screen readers say it. */
  readonly announce: (text: string) => void;
}

export const PersonContext = createContext<Person>({ by: null, announce: () => {} });

/** Makes changes in the name of the person at the page, and says what came of them. */
export function useChange() {
  const { by, announce } = useContext(PersonContext);
  return async <T,>(path: string, body: object, done: string | ((answer: T) => string)): Promise<void> => {
    const answer = await post<T>(path, { ...body, ...(by !== null && { by }) });
    announce(typeof done === "string" ? done : done(answer));
  };
}

/** The heading of a page gets the focus after navigation, so that keyboard and screen reader continue there. */
export function PageTitle({ children, about }: { readonly children: string; readonly about?: string }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${children} – svc console`;
    heading.current?.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }, [children]);
  return (
    <>
      <h1 tabIndex={-1} ref={heading}>
        {children}
      </h1>
      <p class="quiet">{about}</p>
    </>
  );
}

export function Section({ title, children }: { readonly title: string; readonly children: ComponentChildren }) {
  const id = useId();
  return (
    <section aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      {children}
    </section>
  );
}

export function ErrorNote({ children }: { readonly children: string | undefined }) {
  if (children === undefined) return null;
  return (
    <p class="note bad" role="alert">
      <strong>Error.</strong> {children}
    </p>
  );
}

interface LoadedProps<T> {
  readonly resource: Resource<T>;
  readonly children: (data: T) => ComponentChildren;
}

/** What a page loads, or why it is not there. */
export function Loaded<T>({ resource: { data, error }, children }: LoadedProps<T>) {
  return (
    <>
      <ErrorNote>{error}</ErrorNote>
      {data !== undefined ? children(data) : error === undefined ? <p class="quiet">Loading…</p> : null}
    </>
  );
}

const TONES: Readonly<Record<string, string>> = {
  ...{ sent: "good", processed: "good", done: "good", ok: "good", active: "good", closed: "good" },
  ...{ dead: "bad", failed: "bad", failing: "bad", locked: "bad", open: "bad", broken: "bad", breaker_open: "bad" },
  ...{ parked: "warn", paused: "warn", slow: "warn", degraded: "warn", retry: "warn", half_open: "warn" },
  ...{ interrupted: "warn", cancelled: "warn", processing: "info", pending: "info", running: "info" },
};

/** A state, in words and by colour. */
export function Badge({ children }: { readonly children: string }) {
  return <span class={`badge ${TONES[children] ?? ""}`}>{children.replaceAll("_", " ")}</span>;
}

interface TimeProps {
  readonly at: string | null | undefined;
  readonly isRelative?: boolean;
}

/** A time in UTC, as logs and `svc trace` have it; the tooltip has the time here. */
export function Time({ at, isRelative = false }: TimeProps) {
  if (at === null || at === undefined) return <span>{UNKNOWN}</span>;
  return (
    <time dateTime={at} title={isRelative ? at : new Date(at).toString()}>
      {isRelative ? ago(at) : at}
    </time>
  );
}

export const UUID = /^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$/i;

export function MessageLink({ id, isShort = true }: { readonly id: string; readonly isShort?: boolean }) {
  return (
    <a class="mono" href={link(["messages", id])} title={id}>
      {isShort ? `${id.slice(0, 8)}…${id.slice(-4)}` : id}
    </a>
  );
}

export interface Column<T> {
  readonly title: string;
  readonly cell: (row: T) => ComponentChildren;
  readonly is?: "number" | "wide";
}

export const LAST_ERROR: Column<{ readonly lastError?: string | null }> = {
  ...{ title: "Last error", is: "wide" },
  cell: ({ lastError }) => <span class="reason">{lastError ?? UNKNOWN}</span>,
};

/** The column for the cell that has a row; none without cells. */
export function cellColumn<T extends { readonly cell?: string | undefined }>(rows: readonly T[]): readonly Column<T>[] {
  return rows.some(({ cell }) => cell !== undefined) ? [{ title: "Cell", cell: ({ cell }) => cell }] : [];
}

interface TableProps<T> {
  readonly caption: string;
  readonly rows: readonly T[];
  readonly columns: readonly Column<T>[];
  /** What is shown instead of an empty table. */
  readonly empty?: string;
}

/** A table; on a narrow screen each row becomes a list of its cells. */
export function Table<T>({ caption, rows, columns, empty = "" }: TableProps<T>) {
  if (rows.length === 0) return <p class="quiet">{empty}</p>;
  return (
    <table>
      <caption class="unseen">{caption}</caption>
      <thead>
        <tr>
          {columns.map(({ title, is }) => (
            <th key={title} scope="col" class={is}>
              {title}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row, n) => (
          // A row of the newest data may be drawn in the place of any other one.
          <tr key={n}>
            {columns.map(({ title, cell, is }) => (
              <td key={title} data-label={title} class={is}>
                <div>{cell(row) ?? UNKNOWN}</div>
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

interface PagesProps<T> {
  /** The address of the first page. */
  readonly of: (cursor: string | undefined) => string;
  readonly beat: number;
  readonly children: (data: T, page: number) => ComponentChildren;
}

/** A list in pages, newest first. The first one shows what comes; an older one stays unchanged. */
export function Pages<T extends { readonly cursor: string | null }>({ of, beat, children }: PagesProps<T>) {
  const [cursors, setCursors] = useState<readonly string[]>([]);
  const resource = useResource<T>(of(cursors.at(-1)), cursors.length === 0 ? beat : 0);
  const next = resource.data?.cursor ?? null;
  return (
    <>
      <Loaded resource={resource}>{(data) => children(data, cursors.length + 1)}</Loaded>
      <nav class="actions" aria-label="Pages">
        <button type="button" disabled={cursors.length === 0} onClick={() => setCursors(cursors.slice(0, -1))}>
          Newer
        </button>
        <button type="button" disabled={next === null} onClick={() => next !== null && setCursors([...cursors, next])}>
          Older
        </button>
        <span class="quiet">Page {cursors.length + 1}</span>
      </nav>
    </>
  );
}

interface FieldProps {
  readonly label: string;
  readonly value: string;
  readonly onValue: (value: string) => void;
  readonly hint?: string;
}

interface ControlProps extends Pick<FieldProps, "label" | "hint"> {
  readonly children: (own: { readonly id: string; readonly "aria-describedby"?: string }) => ComponentChildren;
}

function Labelled({ label, hint, children }: ControlProps) {
  const id = useId();
  const hintId = `${id}-hint`;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children(hint === undefined ? { id } : { id, "aria-describedby": hintId })}
      {hint && (
        <small id={hintId} class="quiet">
          {hint}
        </small>
      )}
    </div>
  );
}

interface TextFieldProps extends FieldProps {
  readonly type?: "text" | "password" | "number" | "datetime-local" | "search";
  readonly isRequired?: boolean;
  readonly placeholder?: string;
  readonly autoComplete?: string;
}

export function TextField(props: TextFieldProps) {
  const { value, onValue, type = "text", isRequired = false, placeholder, autoComplete = "off" } = props;
  return (
    <Labelled {...props}>
      {(own) => (
        // The type is one of several, whose attributes the types of Preact keep apart.
        <input
          {...{ ...own, type: type as "text", required: isRequired, value, placeholder, autoComplete }}
          step={type === "datetime-local" ? 1 : undefined}
          spellcheck={false}
          onInput={(event) => onValue(event.currentTarget.value)}
        />
      )}
    </Labelled>
  );
}

export function Area(props: FieldProps) {
  return (
    <Labelled {...props}>
      {(own) => (
        <textarea
          {...{ ...own, value: props.value, rows: 9, class: "mono", spellcheck: false }}
          onInput={(event) => props.onValue(event.currentTarget.value)}
        />
      )}
    </Labelled>
  );
}

export function Choice({ options, ...props }: FieldProps & { readonly options: Options }) {
  return (
    <Labelled {...props}>
      {(own) => (
        <select {...own} value={props.value} onChange={(event) => props.onValue(event.currentTarget.value)}>
          {options.map(([each, text]) => (
            <option key={each} value={each} selected={each === props.value}>
              {text}
            </option>
          ))}
        </select>
      )}
    </Labelled>
  );
}

interface DialogProps {
  readonly title: string;
  readonly action: string;
  readonly isDanger?: boolean;
  /** Does the work; the dialog closes when it has succeeded and shows the error otherwise. */
  readonly onConfirm: () => Promise<unknown>;
  readonly onClose: () => void;
  readonly children?: ComponentChildren;
}

/** Asks before something changes. The browser keeps the focus in it and gives it back. */
export function Dialog({ title, action, isDanger = false, onConfirm, onClose, children }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  const { error, isBusy, attempt } = useAttempt();
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  const confirm = attempt(async () => {
    await onConfirm();
    dialog.current?.close();
  });
  return (
    <dialog ref={dialog} aria-labelledby={titleId} onClose={onClose}>
      <form onSubmit={confirm}>
        <h2 id={titleId}>{title}</h2>
        {children}
        <ErrorNote>{error}</ErrorNote>
        <div class="actions">
          <button type="submit" class={isDanger ? "danger" : "primary"} disabled={isBusy}>
            {action}
          </button>
          <button type="button" onClick={() => dialog.current?.close()}>
            Cancel
          </button>
        </div>
      </form>
    </dialog>
  );
}

/** Work that somebody asks for: whether it runs, and how it failed last. */
export function useAttempt() {
  const [error, setError] = useState<string | undefined>();
  const [isBusy, setBusy] = useState(false);
  const run = async (work: () => Promise<unknown>): Promise<void> => {
    setBusy(true);
    setError(undefined);
    await work().catch((failure: Error) => setError(failure.message));
    setBusy(false);
  };
  /** The handler of a form or a button. */
  const attempt = (work: () => Promise<unknown>) => (event?: Event) => {
    event?.preventDefault();
    void run(work);
  };
  return { error, isBusy, attempt };
}

type Fact = readonly [name: string, value: ComponentChildren];

/** Facts as names and values; those without a value are left out. */
export function Facts({ entries }: { readonly entries: readonly Fact[] }) {
  return (
    <dl class="grid">
      {entries
        .filter(([, value]) => value !== null && value !== undefined && value !== "")
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}
