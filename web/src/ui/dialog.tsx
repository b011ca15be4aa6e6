/** A question in a window of its own; Escape closes it, and what was typed stays until then. */
import { useEffect, useRef, type ReactNode } from "react";

export function Dialog({ title, close, children }: { title: string; close: () => void; children: ReactNode }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const it = dialog.current;
    it?.showModal();
    return () => it?.close();
  }, []);
  return (
    <dialog
      ref={dialog}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault();
        close();
      }}
      onClick={(event) => event.target === dialog.current && close()}
    >
      <div className="dialog">
        <h2>{title}</h2>
        {children}
      </div>
    </dialog>
  );
}
