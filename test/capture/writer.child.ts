// Changes orders one after another, some in transactions that it rolls back, and prints each one that is committed.
import pg from 'pg';

const client = new pg.Client({ connectionString: process.argv[2] ?? '', application_name: 'capture writer' });
await client.connect();
for (let id = 1; ; id = (id % 100) + 1) {
  await client.query('begin');
  await client.query("update orders set status = 'new' where id = $1 + 1000", [id]);
  await client.query("update orders set status = 'changed' where id = $1", [id]);
  await client.query(id % 3 === 0 ? 'rollback' : 'commit');
  console.log(JSON.stringify({ id }));
}
