import { useState } from "preact/hooks";
import { post } from "../api.ts";
import type { SessionInfo } from "../types.ts";
import { Choice, ErrorNote, PageTitle, TextField } from "../ui.tsx";

interface SignInProps {
  readonly session: SessionInfo;
  readonly onSignedIn: (session: SessionInfo) => void;
}

/** Makes a session from the admin credentials or from a one-time code. The credentials are not kept. */
export function SignInPage({ session, onSignedIn }: SignInProps) {
  const { method, headerName } = session;
  const [by, setBy] = useState("");
  const [credential, setCredential] = useState("");
  // A browser cannot sign requests: the secret would have to leave the server.
  const [isCode, setCode] = useState(method === "hmac");
  const [error, setError] = useState<string | undefined>();
  const [isBusy, setBusy] = useState(false);
  const signIn = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    const name = by.trim() === "" ? {} : { by: by.trim() };
    const header = {
      [headerName ?? "Authorization"]: method === "bearer" ? `Bearer ${credential.trim()}` : credential.trim(),
    };
    try {
      const signedIn = isCode
        ? await post<SessionInfo>("console/session", { ...name, code: credential.trim() })
        : await post<SessionInfo>("console/session", name, { headers: header });
      onSignedIn(signedIn);
    } catch (failure) {
      setError((failure as Error).message);
      setBusy(false);
    }
  };
  const label = isCode ? "One-time code" : method === "bearer" ? "Admin token" : `Admin key (${headerName})`;
  return (
    <main class="sign-in">
      <PageTitle>Sign in</PageTitle>
      <p class="quiet">
        {isCode
          ? "Run svc console sign-in where the configuration is, and paste what it prints."
          : "With the credentials of admin.auth. They become a session of 30 minutes, 8 hours at most, and are not kept."}
      </p>
      <form class="panel" onSubmit={(event) => void signIn(event)}>
        {method === "hmac" ? null : (
          <Choice
            label="With"
            value={isCode ? "code" : "credential"}
            onValue={(value) => {
              setCode(value === "code");
              setCredential("");
            }}
            options={[
              ["credential", method === "bearer" ? "the admin token" : "the admin key"],
              ["code", "a one-time code"],
            ]}
          />
        )}
        <TextField
          label={label}
          type="password"
          value={credential}
          onValue={setCredential}
          isRequired
          autoComplete="off"
        />
        <TextField
          label="Your name"
          value={by}
          onValue={setBy}
          hint="For the audit log; optional."
          autoComplete="username"
        />
        <ErrorNote>{error}</ErrorNote>
        <div class="actions">
          <button type="submit" class="primary" disabled={isBusy}>
            Sign in
          </button>
        </div>
      </form>
    </main>
  );
}
