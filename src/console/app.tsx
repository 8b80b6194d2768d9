import type { ComponentChild } from "preact";
import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import { get, post, useSession, whenSignedOut } from "./api.ts";
import { LiveProvider, useLive } from "./live.tsx";
import { DestinationsPage } from "./pages/destinations.tsx";
import { FailuresPage } from "./pages/failures.tsx";
import { AuditPage, BlockedKeysPage, ConfigPage } from "./pages/lists.tsx";
import { MessageTimelinePage } from "./pages/message.tsx";
import { MessagesPage } from "./pages/messages.tsx";
import { OverviewPage } from "./pages/overview.tsx";
import { PlaygroundPage } from "./pages/playground.tsx";
import { ReplaysPage } from "./pages/replays.tsx";
import { SignInPage } from "./pages/signIn.tsx";
import { link, type Place, usePlace } from "./router.ts";
import type { SessionInfo } from "./types.ts";
import { ErrorNote, PageTitle, PersonContext, Time } from "./ui.tsx";

/** Signs in first if that is needed, then shows the page that the address names. */
export function App() {
  const [session, setSession] = useState<SessionInfo | undefined>();
  const [error, setError] = useState<string | undefined>();
  const take = useCallback((next: SessionInfo) => {
    useSession(next);
    setError(undefined);
    setSession(next);
  }, []);
  const load = useCallback(() => {
    get<SessionInfo>("console/session").then(take, (failure: Error) => setError(failure.message));
  }, [take]);
  useEffect(() => {
    whenSignedOut(load);
    load();
  }, [load]);
  if (session === undefined) {
    return (
      <main>
        <ErrorNote>{error}</ErrorNote>
        <button type="button" onClick={load}>
          {error === undefined ? "Loading…" : "Try again"}
        </button>
      </main>
    );
  }
  if (!session.isSignedIn) return <SignInPage session={session} onSignedIn={take} />;
  return (
    <LiveProvider>
      <Frame session={session} onSession={take} />
    </LiveProvider>
  );
}

type Page = readonly [title: string, show: (id: string | undefined, place: Place) => ComponentChild];

const PAGES: Readonly<Record<string, Page>> = {
  "": ["Overview", () => <OverviewPage />],
  destinations: ["Destinations", (id) => <DestinationsPage key={id} name={id} />],
  messages: [
    "Messages",
    (id, place) => (id ? <MessageTimelinePage key={id} id={id} /> : <MessagesPage place={place} />),
  ],
  failures: ["Failures", (_, place) => <FailuresPage place={place} />],
  blocked: ["Blocked keys", () => <BlockedKeysPage />],
  replays: ["Replays", (_, place) => <ReplaysPage place={place} />],
  playground: ["Playground", (_, place) => <PlaygroundPage place={place} />],
  config: ["Configuration", () => <ConfigPage />],
  audit: ["Audit log", () => <AuditPage />],
};

function NoPage() {
  return (
    <>
      <PageTitle>No such page</PageTitle>
      <a href={link([""])}>Go to the overview.</a>
    </>
  );
}

interface FrameProps {
  readonly session: SessionInfo;
  readonly onSession: (session: SessionInfo) => void;
}

function Frame({ session: { by, method }, onSession }: FrameProps) {
  const place = usePlace();
  const [notice, setNotice] = useState("");
  const [isMenuOpen, setMenuOpen] = useState(false);
  const person = useMemo(() => ({ by, announce: setNotice }), [by]);
  const [page = "", id] = place.path;
  // Both belong to the page that was left.
  useEffect(() => {
    setMenuOpen(false);
    setNotice("");
  }, [place.path.join("/")]);
  const signOut = (): void => {
    post<SessionInfo>("console/sign-out").then(onSession, (failure: Error) => setNotice(failure.message));
  };
  return (
    <PersonContext.Provider value={person}>
      <button type="button" class="skip" onClick={() => document.querySelector<HTMLElement>("h1")?.focus()}>
        Skip to content
      </button>
      <header>
        <strong>svc console</strong>
        <button
          type="button"
          class="menu"
          aria-expanded={isMenuOpen}
          aria-controls="pages"
          onClick={() => setMenuOpen(!isMenuOpen)}
        >
          Menu
        </button>
        <nav id="pages" aria-label="Console" class={isMenuOpen ? "open" : undefined}>
          {Object.entries(PAGES).map(([path, [title]]) => (
            <a key={path} href={link([path])} aria-current={path === page ? "page" : undefined}>
              {title}
            </a>
          ))}
        </nav>
        <LiveState />
        <span class="quiet">{by}</span>
        {method === "none" ? null : (
          <button type="button" onClick={signOut}>
            Sign out
          </button>
        )}
      </header>
      <main>
        <div role="status" class={notice === "" ? "unseen" : "note good"}>
          {notice}
        </div>
        <MissingCells />
        {PAGES[page]?.[1](id, place) ?? <NoPage />}
      </main>
    </PersonContext.Provider>
  );
}

/** On every page: each may lack what those cells have. */
function MissingCells() {
  const { overview } = useLive();
  const missing = (overview?.cells ?? []).filter(({ awaySince }) => awaySince !== null);
  return (
    <>
      {missing.map(({ name, awaySince, reason }) => (
        <p key={name} class="note warn">
          <strong>The cell {name} does not answer</strong> since <Time at={awaySince} />: its rows are not shown.{" "}
          {reason}
        </p>
      ))}
    </>
  );
}

const STATES = {
  live: ["Live", "good"],
  connecting: ["Connecting…", "warn"],
  unavailable: ["Database away", "bad"],
} as const;

function LiveState() {
  const [text, tone] = STATES[useLive().state];
  return (
    <span class={`badge ${tone}`} role="status">
      {text}
    </span>
  );
}
