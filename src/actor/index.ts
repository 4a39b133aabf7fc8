export type { Duration } from '../base/time/duration.ts';
export {
  type Actors,
  type CreatedActor,
  type CreateOptions,
  createActors,
  type DynamoActorsOptions,
} from './actors.ts';
export { actor, state, stateFor } from './declare.ts';
export type {
  ActorDefinition,
  ActorOptions,
  AnyActorDefinition,
  FieldsIn,
  FieldsOf,
  State,
  StateMaker,
  StateOptions,
} from './definition.ts';
export { DynamoActorOverview } from './dynamodb/operate/overview.ts';
export type { ActorKind, LooseFields } from './kind.ts';
export type { Machine, MachineState } from './machine.ts';
export { ActorAdmin, createActorAdmin } from './operate/admin.ts';
export type { AnswerOf, AskOptions } from './operate/asker.ts';
export type { ActorExplanation } from './operate/explain.ts';
export type {
  HistoryOptions,
  IncrOptions,
  ListOptions,
  MoveOptions,
  PagesOptions,
  PauseTarget,
  TxOptions,
  WaitOptions,
} from './operate/options.ts';
export { consoleChannel, type PageChannel, type PageNotice, type WebhookOptions, webhook } from './pages/channel.ts';
export type { PageOptions, Severity } from './pages/page.ts';
export { ActorOverview, type PageFilter } from './postgres/overview.ts';
export type { ActorHealth, TypeRecord } from './postgres/reader.ts';
export type { ActorRecord, ActorStatus, ActorSummary, ActorTransition, FieldChange, PageRecord } from './record.ts';
export type { RunOptions } from './run-options.ts';
export type { ChildRecord } from './store.ts';
export type { ActorHandle, ActorTarget } from './target.ts';
export type { ChildOptions, JobRequest } from './turn/effects.ts';
export type { PayloadOf, ReceiveOptions } from './turn/inbox.ts';
export type { Message } from './turn/message.ts';
export type { Outcome, Patch } from './turn/outcome.ts';
export type { VisitTimerOptions } from './turn/timers.ts';
export type { Turn } from './turn/turn.ts';
export type { Dispatcher, StopOptions } from './work/dispatcher.ts';
export type { WorkedTurn } from './work/manual-turn.ts';
export type { DispatcherEvents } from './work/report.ts';
