/** What somebody has typed and not sent: kept in this tab, also over a reload, until it is sent. */
import { useCallback, useState } from "react";

export function useDraft(name: string): [string, (text: string) => void] {
  const key = `handrail-draft-${name}`;
  const [held, setHeld] = useState<[string, string]>(() => [key, sessionStorage.getItem(key) ?? ""]);
  const text = held[0] === key ? held[1] : (sessionStorage.getItem(key) ?? "");
  const set = useCallback(
    (changed: string) => {
      if (changed) sessionStorage.setItem(key, changed);
      else sessionStorage.removeItem(key);
      setHeld([key, changed]);
    },
    [key],
  );
  return [text, set];
}
