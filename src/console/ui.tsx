import { type ComponentChildren, createContext } from "preact";
import { useContext, useEffect, useId, useRef, useState } from "preact/hooks";
import { ago, UNKNOWN } from "./format.ts";
import { link } from "./router.ts";

/** The parts that pages are made of. Texts of the service are children, and so never markup. */

interface Announcer {
  /** Shows a result and has screen readers say it. */
  readonly announce: (text: string) => void;
}

export const AnnouncerContext = createContext<Announcer>({ announce: () => {} });
export const useAnnouncer = (): Announcer => useContext(AnnouncerContext);

/** The heading of a page gets the focus after navigation, so that keyboard and screen reader go on from there. */
export function PageTitle({ children, aside }: { readonly children: string; readonly aside?: ComponentChildren }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${children} – svc console`;
    heading.current?.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }, [children]);
  return (
    <div class="title">
      <h1 tabIndex={-1} ref={heading}>
        {children}
      </h1>
      {aside}
    </div>
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
    <p class="note error" role="alert">
      <strong>Error.</strong> {children}
    </p>
  );
}

/** The state of what a page loads; nothing once there is data. */
export function Loading({ resource }: { readonly resource: { error: string | undefined; data: unknown } }) {
  if (resource.error !== undefined) return <ErrorNote>{resource.error}</ErrorNote>;
  return resource.data === undefined ? <p class="quiet">Loading…</p> : null;
}

const TONES: Readonly<Record<string, string>> = {
  ...{ sent: "good", processed: "good", done: "good", running: "info", ok: "good", active: "good", closed: "good" },
  ...{ dead: "bad", failed: "bad", failing: "bad", locked: "bad", open: "bad", broken: "bad", breaker_open: "bad" },
  ...{
    parked: "warn",
    paused: "warn",
    slow: "warn",
    degraded: "warn",
    retry: "warn",
    half_open: "warn",
    interrupted: "warn",
    cancelled: "warn",
  },
  ...{ processing: "info", pending: "info" },
};

/** A state, in words and by colour. */
export function Badge({ children }: { readonly children: string }) {
  return <span class={`badge ${TONES[children] ?? "plain"}`}>{children.replaceAll("_", " ")}</span>;
}

/** A time in UTC, as logs and `svc trace` have it; the tooltip has the time here. */
export function Time({
  at,
  isRelative = false,
}: {
  readonly at: string | null | undefined;
  readonly isRelative?: boolean;
}) {
  if (at === null || at === undefined) return <span>{UNKNOWN}</span>;
  return (
    <time dateTime={at} title={isRelative ? at : new Date(at).toString()}>
      {isRelative ? ago(at) : at}
    </time>
  );
}

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
  readonly isNumber?: boolean;
  readonly isWide?: boolean;
}

/** The column for the cell that has a row; none without cells. */
export function cellColumn<T extends { readonly cell?: string | undefined }>(rows: readonly T[]): readonly Column<T>[] {
  return rows.some(({ cell }) => cell !== undefined) ? [{ title: "Cell", cell: ({ cell }) => cell ?? UNKNOWN }] : [];
}

/** Whether the window is a phone's; as in style.css. */
export const isNarrow = (): boolean => matchMedia("(max-width: 48rem)").matches;

interface TableProps<T> {
  readonly caption: string;
  readonly rows: readonly T[];
  readonly columns: readonly Column<T>[];
  readonly keyOf: (row: T) => string;
  /** What is shown instead of an empty table. */
  readonly empty: string;
}

/** A table; on a narrow screen each row becomes a list of its cells. */
export function Table<T>({ caption, rows, columns, keyOf, empty }: TableProps<T>) {
  if (rows.length === 0) return <p class="quiet">{empty}</p>;
  return (
    <table>
      <caption class="unseen">{caption}</caption>
      <thead>
        <tr>
          {columns.map(({ title, isNumber }) => (
            <th key={title} scope="col" class={isNumber ? "number" : undefined}>
              {title}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={keyOf(row)}>
            {columns.map(({ title, cell, isNumber, isWide }) => (
              <td key={title} data-label={title} class={isNumber ? "number" : isWide ? "wide" : undefined}>
                <div>{cell(row)}</div>
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

interface FieldProps {
  readonly label: string;
  readonly hint?: string;
  readonly children: (id: string, hintId: string | undefined) => ComponentChildren;
}

/** A labelled input. */
export function Field({ label, hint, children }: FieldProps) {
  const id = useId();
  const hintId = hint === undefined ? undefined : `${id}-hint`;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children(id, hintId)}
      {hint === undefined ? null : (
        <small id={hintId} class="quiet">
          {hint}
        </small>
      )}
    </div>
  );
}

interface TextFieldProps {
  readonly label: string;
  readonly value: string;
  readonly onValue: (value: string) => void;
  readonly hint?: string;
  readonly type?: "text" | "password" | "number" | "datetime-local" | "search";
  readonly isRequired?: boolean;
  readonly placeholder?: string;
  readonly autoComplete?: string;
}

export function TextField(props: TextFieldProps) {
  const { label, value, onValue, hint, type = "text", isRequired = false, placeholder, autoComplete = "off" } = props;
  return (
    <Field label={label} {...(hint === undefined ? {} : { hint })}>
      {(id, hintId) => (
        // The type is one of several, whose attributes the types of Preact keep apart.
        <input
          {...{ type: type as "text" }}
          id={id}
          step={type === "datetime-local" ? 1 : undefined}
          value={value}
          required={isRequired}
          placeholder={placeholder}
          autoComplete={autoComplete}
          spellcheck={false}
          aria-describedby={hintId}
          onInput={(event) => onValue(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}

interface ChoiceProps {
  readonly label: string;
  readonly value: string;
  readonly onValue: (value: string) => void;
  readonly options: readonly (readonly [value: string, text: string])[];
}

export function Choice({ label, value, onValue, options }: ChoiceProps) {
  return (
    <Field label={label}>
      {(id) => (
        <select id={id} value={value} onChange={(event) => onValue(event.currentTarget.value)}>
          {options.map(([each, text]) => (
            <option key={each} value={each} selected={each === value}>
              {text}
            </option>
          ))}
        </select>
      )}
    </Field>
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
  const [error, setError] = useState<string | undefined>();
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  const confirm = async (): Promise<void> => {
    setBusy(true);
    try {
      await onConfirm();
      dialog.current?.close();
    } catch (failure) {
      setError((failure as Error).message);
      setBusy(false);
    }
  };
  return (
    <dialog ref={dialog} aria-labelledby={titleId} onClose={onClose}>
      <form
        class="dialog-form"
        onSubmit={(event) => {
          event.preventDefault();
          void confirm();
        }}
      >
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

/** Facts as names and values; those without a value are left out. */
export function Facts({
  entries,
}: {
  readonly entries: readonly (readonly [name: string, value: ComponentChildren])[];
}) {
  return (
    <dl class="facts">
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
