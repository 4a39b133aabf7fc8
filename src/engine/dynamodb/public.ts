// The public part of `pawl/dynamodb`, by name: the rest of the engine is only for the other parts of Pawl.
export type { ConditionCheckItem, DynamoClient, DynamoOptions, TableReport } from './index.ts';
export { DynamoEngine, dynamodb } from './index.ts';
