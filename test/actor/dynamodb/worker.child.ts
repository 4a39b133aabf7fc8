// A dispatcher of actors on DynamoDB. It tells when a slow turn has begun, and when it has lost one.
import { createActors } from '../../../src/actor/index.ts';
import { dynamodb } from '../../../src/engine/dynamodb/index.ts';
import { dynamoClient } from '../../support/dynamodb.ts';
import { Tally, told } from './tally.ts';

const { ENDPOINT = '', TABLE = '' } = process.env;
const say = (message: object): void => console.log(JSON.stringify(message));
told.began = (id) => say({ began: id });

const actors = createActors(dynamodb(dynamoClient(ENDPOINT), { table: TABLE }), [Tally]);
const dispatcher = actors.run({ lease: '3s', poll: '100ms' });
dispatcher.events.on('lost', () => say({ lost: true }));
dispatcher.events.on('stale', () => say({ lost: true }));
dispatcher.events.on('error', () => {});
await dispatcher.started;
say({ ready: true });
