import { useState } from "preact/hooks";
import { post } from "../api.ts";
import type { SessionInfo } from "../types.ts";
import { Choice, ErrorNote, PageTitle, TextField, useAttempt } from "../ui.tsx";

interface SignInProps {
  readonly session: SessionInfo;
  readonly onSignedIn: (session: SessionInfo) => void;
}

const WITH_CODE = "Run svc console sign-in on a machine with the configuration, and paste what it prints.";
const WITH_CREDENTIALS =
  "With the credentials of admin.auth. They become a session of 30 minutes, 8 hours at most, and are not kept.";

/** Makes a session from the admin credentials or from a one-time code. The credentials are not kept. */
export function SignInPage({ session, onSignedIn }: SignInProps) {
  const { method, headerName } = session;
  const [by, setBy] = useState("");
  const [credential, setCredential] = useState("");
  // A browser cannot sign requests: the secret would have to leave the server.
  const [isCode, setCode] = useState(method === "hmac");
  const { error, isBusy, attempt } = useAttempt();
  const text = credential.trim();
  const signIn = attempt(async () => {
    const header = { [headerName ?? "Authorization"]: method === "bearer" ? `Bearer ${text}` : text };
    const body = { by: by.trim() || null, code: isCode ? text : null };
    onSignedIn(await post<SessionInfo>("console/session", body, isCode ? {} : header));
  });
  const label = isCode ? "One-time code" : method === "bearer" ? "Admin token" : `Admin key (${headerName})`;
  return (
    <main class="sign-in">
      <PageTitle about={isCode ? WITH_CODE : WITH_CREDENTIALS}>Sign in</PageTitle>
      <form class="card" onSubmit={signIn}>
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
        <TextField label={label} type="password" value={credential} onValue={setCredential} isRequired />
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
