import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import { get, post, useSession, whenSignedOut } from "./api.ts";
import { LiveProvider, useLive } from "./live.tsx";
import { AuditPage } from "./pages/audit.tsx";
import { BlockedKeysPage } from "./pages/blocked.tsx";
import { ConfigPage } from "./pages/config.tsx";
import { DestinationsPage } from "./pages/destinations.tsx";
import { FailuresPage } from "./pages/failures.tsx";
import { MessageTimelinePage } from "./pages/message.tsx";
import { MessagesPage } from "./pages/messages.tsx";
import { OverviewPage } from "./pages/overview.tsx";
import { PlaygroundPage } from "./pages/playground.tsx";
import { ReplaysPage } from "./pages/replays.tsx";
import { SignInPage } from "./pages/signIn.tsx";
import { link, type Place, usePlace } from "./router.ts";
import { SessionContext } from "./session.ts";
import type { SessionInfo } from "./types.ts";
import { AnnouncerContext, ErrorNote, PageTitle, Time } from "./ui.tsx";

/** Signs in first where that is needed, then shows the page that the address names. */
export function App() {
  const [session, setSession] = useState<SessionInfo | undefined>();
  const [error, setError] = useState<string | undefined>();
  const take = useCallback((next: SessionInfo) => {
    useSession(next);
    setSession(next);
  }, []);
  const load = useCallback(() => {
    get<SessionInfo>("console/session").then(
      (next) => {
        setError(undefined);
        take(next);
      },
      (failure: Error) => setError(failure.message),
    );
  }, [take]);
  useEffect(() => {
    whenSignedOut(load);
    load();
  }, [load]);
  if (session === undefined) {
    return (
      <main>
        <ErrorNote>{error}</ErrorNote>
        {error === undefined ? (
          <p class="quiet">Loading…</p>
        ) : (
          <button type="button" onClick={load}>
            Try again
          </button>
        )}
      </main>
    );
  }
  if (!session.isSignedIn) return <SignInPage session={session} onSignedIn={take} />;
  return (
    <SessionContext.Provider value={session}>
      <LiveProvider>
        <Frame session={session} onSession={take} />
      </LiveProvider>
    </SessionContext.Provider>
  );
}

const PAGES = [
  ["", "Overview"],
  ["destinations", "Destinations"],
  ["messages", "Messages"],
  ["failures", "Failures"],
  ["blocked", "Blocked keys"],
  ["replays", "Replays"],
  ["playground", "Playground"],
  ["config", "Configuration"],
  ["audit", "Audit log"],
] as const;

interface FrameProps {
  readonly session: SessionInfo;
  readonly onSession: (session: SessionInfo) => void;
}

function Frame({ session, onSession }: FrameProps) {
  const place = usePlace();
  const [notice, setNotice] = useState("");
  const [isMenuOpen, setMenuOpen] = useState(false);
  const announcer = useMemo(() => ({ announce: setNotice }), []);
  const [page = ""] = place.path;
  // Both belong to the page that was left.
  useEffect(() => {
    setMenuOpen(false);
    setNotice("");
  }, [place.path.join("/")]);
  const signOut = (): void => {
    post<SessionInfo>("console/sign-out").then(onSession, (failure: Error) => setNotice(failure.message));
  };
  return (
    <AnnouncerContext.Provider value={announcer}>
      <button type="button" class="skip" onClick={() => document.querySelector<HTMLElement>("h1")?.focus()}>
        Skip to content
      </button>
      <header>
        <span class="brand">svc console</span>
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
          {PAGES.map(([path, title]) => (
            <a key={path} href={link([path])} aria-current={path === page ? "page" : undefined}>
              {title}
            </a>
          ))}
        </nav>
        <div class="who">
          <LiveState />
          {session.by === null ? null : <span class="quiet name">{session.by}</span>}
          {session.method === "none" ? null : (
            <button type="button" onClick={signOut}>
              Sign out
            </button>
          )}
        </div>
      </header>
      <main>
        <div role="status" class={notice === "" ? "unseen" : "note good"}>
          {notice}
        </div>
        <MissingCells />
        <Page place={place} />
      </main>
    </AnnouncerContext.Provider>
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
          <strong>The cell {name} does not answer</strong> since <Time at={awaySince} />: what it has is not shown.{" "}
          {reason}
        </p>
      ))}
    </>
  );
}

function LiveState() {
  const { state } = useLive();
  const texts = { live: "Live", connecting: "Connecting…", unavailable: "Database away" } as const;
  return (
    <span class={`live ${state}`} role="status">
      {texts[state]}
    </span>
  );
}

function Page({ place }: { readonly place: Place }) {
  const [page = "", id] = place.path;
  switch (page) {
    case "":
      return <OverviewPage />;
    case "destinations":
      return <DestinationsPage key={id} name={id} />;
    case "messages":
      return id === undefined ? <MessagesPage place={place} /> : <MessageTimelinePage key={id} id={id} />;
    case "failures":
      return <FailuresPage place={place} />;
    case "blocked":
      return <BlockedKeysPage />;
    case "replays":
      return <ReplaysPage place={place} />;
    case "playground":
      return <PlaygroundPage place={place} />;
    case "config":
      return <ConfigPage />;
    case "audit":
      return <AuditPage />;
    default:
      return (
        <>
          <PageTitle>No such page</PageTitle>
          <p>
            <a href={link([""])}>Go to the overview.</a>
          </p>
        </>
      );
  }
}
