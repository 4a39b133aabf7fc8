export { type Actors, type CreatedActor, type CreateOptions, createActors, type RunOptions } from './actors.ts';
export {
  ActorAdmin,
  createActorAdmin,
  type HistoryOptions,
  type IncrOptions,
  type ListOptions,
  type PagesOptions,
  type PauseTarget,
  type TxOptions,
  type WaitOptions,
} from './admin.ts';
export { consoleChannel, type PageChannel, type PageNotice, type WebhookOptions, webhook } from './channel.ts';
export {
  type ActorDefinition,
  type ActorOptions,
  type AnyActorDefinition,
  actor,
  type FieldsIn,
  type FieldsOf,
  type State,
  type StateMaker,
  type StateOptions,
  state,
  stateFor,
} from './definition.ts';
export type { Dispatcher, StopOptions } from './dispatcher.ts';
export type { JobRequest } from './effects.ts';
export type { ActorExplanation } from './explain.ts';
export type { WorkedTurn } from './hand.ts';
export type { ActorKind, LooseFields } from './kind.ts';
export type { Machine, MachineState } from './machine.ts';
export type { Outcome } from './outcome.ts';
export type { PageOptions, Severity } from './page.ts';
export type { ActorHealth, TypeRecord } from './postgres-read.ts';
export type { ActorRecord, ActorStatus, ActorSummary, ActorTransition, PageRecord } from './record.ts';
export type { ActorHandle, ActorTarget } from './ref.ts';
export type { ChildRecord, Message } from './store.ts';
export type { ChildOptions, Patch, Turn } from './turn.ts';
export type { DispatcherEvents } from './worker.ts';
