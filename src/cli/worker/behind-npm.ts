/**
 * The warning for a worker that npx or npm run has started; otherwise undefined. At SIGTERM, npm ends without the worker. So in
 * a container the worker's jobs are cut off, and elsewhere the worker goes on alone. npm shows its children the script that it
 * runs; npx shows it without the arguments.
 */
export function behindNpm(env: NodeJS.ProcessEnv): string | undefined {
  const script = env['npm_lifecycle_script'] ?? '';
  const isOurs = env['npm_lifecycle_event'] === 'npx' ? /\bpawl\b/ : /\bpawl\b.*\bworker\b/;
  if (!isOurs.test(script) || /\bexec\s/.test(script)) return undefined;
  return 'npm has started this worker, and passes no SIGTERM on to it: start node_modules/.bin/pawl, or write "exec pawl worker …" in the script';
}
