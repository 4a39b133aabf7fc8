import { startEmbedded } from '../../../../src/engine/postgres/embedded/index.ts';

// Starts a server and says where; leaves it running, as a process that crashes or forgets to stop it does.
const [data, end, made] = process.argv.slice(2);
const server = await startEmbedded({ ...(data ? { data } : {}), ...(made ? { made } : {}) });
console.log(JSON.stringify({ pid: server.pid, dataDir: server.dataDir }));
if (end !== 'exit') setInterval(() => {}, 1000);
