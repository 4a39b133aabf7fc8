// A process that asks an actor and waits for an hour.
import { createActorAdmin } from '../../../src/actor/index.ts';
import { postgres } from '../../../src/engine/postgres/index.ts';

const { URL: url, ACTOR: actor = '' } = process.env;
await createActorAdmin(postgres(url)).ask(actor, 'anybody?', null, { wait: '1h' });
