/** Files of the bead: to download, and to add. */
import { useState } from "react";
import { ask } from "../api/client";
import { useQuery } from "../api/query";
import type { Bead, BeadFile, Page } from "../api/schema";
import { useMe } from "../me";
import { Empty, Id, Loaded, Moment, Trouble } from "../ui/atoms";

export function Files({ bead }: { bead: Bead }) {
  const files = useQuery<Page<BeadFile>>(`/beads/${bead.id}/files`);
  const me = useMe();
  const [error, setError] = useState<Error>();
  const send = async (file: File | undefined): Promise<void> => {
    if (!file) return;
    const form = new FormData();
    form.set("file", file);
    setError(undefined);
    await ask("POST", `/beads/${bead.id}/files`, { body: form }).catch((problem: Error) => setError(problem));
    files.again();
  };
  return (
    <Loaded of={files} lines={3}>
      {(found) => (
        <>
          {found.items.length ? (
            <ul className="files">
              {found.items.map((file) => (
                <li key={file.name}>
                  <a href={`/api/v1/beads/${bead.id}/files/${encodeURIComponent(file.name)}`} download>
                    {file.name}
                  </a>
                  <span className="faint">{(file.size / 1024).toFixed(1)} kB</span>
                  <span className="faint">
                    sha256 <Id id={file.sha256} />
                  </span>
                  <span className="faint">
                    {file.uploaded_by}, <Moment at={file.created_at} />
                  </span>
                </li>
              ))}
            </ul>
          ) : (
            <Empty title="No files">What is attached to the bead is given to its agents.</Empty>
          )}
          {me.atLeast("operator") && (
            <label className="upload">
              Add a file
              <input type="file" onChange={(event) => void send(event.target.files?.[0])} />
            </label>
          )}
          {error && <Trouble error={error} />}
        </>
      )}
    </Loaded>
  );
}
