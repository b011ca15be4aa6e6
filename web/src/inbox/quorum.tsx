/** Where several people have to agree: who has, and who is still asked. */
import { path } from "../api/client";
import { useQuery, type Concerns } from "../api/query";
import type { Approval, DefinitionDocument, HistoryEvent, Page } from "../api/schema";

export function Quorum({ approval, document, concerns }: { approval: Approval; document: DefinitionDocument | undefined; concerns: Concerns }) {
  const config = document?.nodes?.find((one) => one.id === approval.node_id)?.config ?? (document?.review as { quorum?: number; approvers?: string[] } | undefined);
  const wanted = config?.quorum ?? 1;
  const acts = useQuery<Page<HistoryEvent>>(wanted > 1 ? path("/audit", { execution_id: approval.execution_id, people: true, limit: 200 }) : null, concerns);
  if (wanted <= 1) return null;
  const given = (acts.data?.items ?? []).filter((one) => one.type === "answered" && one.question_id === approval.id && one.decision === "approve");
  const names = given.map((one) => one.actor);
  const asked = (config?.approvers ?? []).filter((one) => !names.includes(one));
  return (
    <p className="quorum">
      <strong>
        {names.length} of {wanted} have approved
      </strong>
      {names.length > 0 && `: ${names.join(", ")}`}
      {asked.length > 0 && `; still asked: ${asked.join(", ")}`}
    </p>
  );
}
