/** The examples are part of the package; what they are made with, beside Pawl, is not installed with it. */
const PACKAGES = ['valibot@1.5.0', 'write-excel-file@4.1.1', 'read-excel-file@9.3.17'];

/** The examples cannot run here, and what to type to run them. */
export class NeedsPackages extends Error {
  override readonly name = 'NeedsPackages';

  constructor(cause: unknown) {
    const install = PACKAGES.map((name) => `-p ${name}`).join(' ');
    super(
      `the examples need packages that Pawl itself does not: ${PACKAGES.join(', ')}; ` +
        `try  npx -y -p pawl ${install} pawl dev`,
      { cause },
    );
  }
}

/** @returns undefined when something else was missing or wrong */
export function needsPackages(error: unknown): NeedsPackages | undefined {
  if (!(error instanceof Error) || !('code' in error) || error.code !== 'ERR_MODULE_NOT_FOUND') return undefined;
  const isOurs = PACKAGES.some((name) => error.message.includes(`'${name.slice(0, name.lastIndexOf('@'))}'`));
  return isOurs ? new NeedsPackages(error) : undefined;
}
