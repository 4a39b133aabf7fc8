/**
 * What to say where npx or npm run has started this worker; else undefined. They end at SIGTERM without it, so its jobs are cut off in a
 * container, and elsewhere it goes on alone. npm shows its children the script that it runs, and of npx without the arguments.
 */
export function behindNpm(env: NodeJS.ProcessEnv): string | undefined {
  const script = env['npm_lifecycle_script'] ?? '';
  const isOurs = env['npm_lifecycle_event'] === 'npx' ? /\bpawl\b/ : /\bpawl\b.*\bworker\b/;
  if (!isOurs.test(script) || /\bexec\s/.test(script)) return undefined;
  return 'npm has started this worker, and passes no SIGTERM on to it: start node_modules/.bin/pawl, or write "exec pawl worker …" in the script';
}
