/** The report, as a text to read or to send on. */
import { useQuery, type Concerns } from "../api/query";
import type { Run } from "../api/schema";
import { Loaded } from "../ui/atoms";
import { Markdown } from "../ui/markdown";

export function ReportView({ run, concerns }: { run: Run; concerns: Concerns }) {
  const report = useQuery<string>(`/executions/${run.id}/report`, concerns, "text/markdown");
  return (
    <Loaded of={report}>
      {(text) => (
        <>
          <p>
            <button type="button" onClick={() => void navigator.clipboard?.writeText(text)}>
              Copy as Markdown
            </button>
          </p>
          <Markdown text={text} />
        </>
      )}
    </Loaded>
  );
}
