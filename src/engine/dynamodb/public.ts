// `pawl/dynamodb`, as programs see it: by name, since the rest of the engine is for the other parts of Pawl alone.
export type { ConditionCheckItem, DynamoClient, DynamoOptions, TableReport } from './index.ts';
export { DynamoEngine, dynamodb } from './index.ts';
