/** The page begins here: who is signed in is asked first, everything else hangs on it. */
import { StrictMode, useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { get, Problem, setMark } from "./api/client";
import { begin } from "./api/live";
import type { Me } from "./api/schema";
import { Frame } from "./frame";
import { MeContext } from "./me";
import "./style.css";
import { Command, Trouble } from "./ui/atoms";

const AGAIN_MS = 3000;

function Handrail() {
  const [me, setMe] = useState<Me>();
  const [error, setError] = useState<Error>();
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const ask = (): void => {
      get<Me>("/me")
        .then((found) => {
          setMark(found.csrf);
          void begin().then(() => setMe(found));
        })
        .catch((problem: Error) => {
          setError(problem);
          if (!(problem instanceof Problem)) timer = setTimeout(ask, AGAIN_MS);
        });
    };
    ask();
    return () => clearTimeout(timer);
  }, []);
  if (me) {
    return (
      <MeContext.Provider value={me}>
        <Frame />
      </MeContext.Provider>
    );
  }
  if (error instanceof Problem && error.status === 401) return <SignedOut />;
  return error ? (
    <main className="alone">
      <Trouble error={error} />
    </main>
  ) : null;
}

export function SignedOut() {
  return (
    <main className="alone">
      <img src="/assets/handrail.svg" alt="" width="40" height="40" />
      <h1>You are not signed in</h1>
      <p>Whoever runs this server can make a link that signs you in, once:</p>
      <Command text="handrail sign-in" />
    </main>
  );
}

const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <Handrail />
    </StrictMode>,
  );
}
