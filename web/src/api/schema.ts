/** Names for what the API answers; the shapes are generated from its OpenAPI document. */
import type { components } from "./types.gen";

type Schemas = components["schemas"];

export type Me = Schemas["Me"];
export type Run = Schemas["RunView"];
export type WholeRun = Schemas["RunDetails"];
export type RunItem = Schemas["RunItem"];
export type RunSummary = Schemas["RunSummary"];
export type Why = Schemas["RunExplanation"];
export type Report = Schemas["RunReport"];
export type Step = Schemas["StepDetails"];
export type Transition = Schemas["TransitionView"];
export type Iteration = Schemas["Iteration"];
export type HumanAct = Schemas["HumanAct"];
export type Approval = Schemas["Approval"];
export type Answered = Schemas["AnsweredApproval"];
export type Bead = Schemas["BeadView"];
export type BeadFile = Schemas["FileInfo"];
export type Agent = Schemas["AgentView"];
export type Bound = Schemas["Bound"];
export type DefinitionItem = Schemas["DefinitionItem"];
export type DefinitionView = Schemas["DefinitionView"];
export type Validated = Schemas["DefinitionValidation"];
export type ReadText = Schemas["ParsedDocument"];
export type Place = Schemas["FieldError"];
export type Channel = Omit<Schemas["ChannelView"], "turnConfig"> & { turnConfig: Required<Schemas["TurnConfig"]> };
export type ChannelTurn = Schemas["ActiveTurnView"];
export type Message = Schemas["MessageView"];
export type Posted = Schemas["PostedMessage"];
export type Checked = Schemas["AuditVerification"];

export type Figures = Schemas["DefinitionStatistics"];
export type WorkflowMetrics = Schemas["WorkflowMetrics"];

export interface Page<T> {
  items: T[];
  next_cursor: string | null;
}

/** An event as the streams, the history and the audit log show it: of a run, or of another stream. */
export interface HistoryEvent {
  execution_id?: string;
  stream?: string; // "channel:ID"
  seq: number;
  type: string;
  at: string;
  actor: string;
  commit?: number;
  [field: string]: unknown;
}

/** Of a definition's document what the page draws; whatever else stands there is left alone. */
export interface DefinitionDocument {
  name?: string;
  kind?: string;
  description?: string;
  nodes?: DefinedNode[];
  edges?: { from_node_id: string; to_node_id: string; condition?: string }[];
  agents?: { id: string; role?: string; description?: string; hands_off_to?: string[] }[];
  start?: string;
  terminator?: string;
  review?: { after?: string[]; back_to?: string; required?: boolean };
  stop_rules?: Record<string, unknown>;
}

export interface DefinedNode {
  id: string;
  type: string;
  role?: string;
  description?: string;
  max_attempts?: number;
  config?: {
    on_failure?: { rework: string; max: number };
    revise_to?: string;
    quorum?: number;
    approvers?: string[];
    [key: string]: unknown;
  };
}

/** A remembered resolution. */
export interface Remembered {
  id: string;
  title: string;
  ticket: string;
  resolution: string;
  status: string;
  execution_id: string;
  created_at: string;
  times_used: number;
  corrected_by: string | null;
}
