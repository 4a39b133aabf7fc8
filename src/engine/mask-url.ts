const SECRETS = ['password', 'sslpassword'];

/** The URL of a database with its passwords replaced by `***`, for people and logs. */
export function maskUrl(url: string): string {
  try {
    const parsed = new URL(url);
    if (parsed.password !== '') parsed.password = '***';
    for (const name of SECRETS) if (parsed.searchParams.has(name)) parsed.searchParams.set(name, '***');
    return parsed.toString();
  } catch {
    // The URL of a socket has no host. Its password may contain ":" and "@", so it ends at the last "@".
    return url.replace(/^([^:]*:\/\/[^:@/]*):[^]*@/, '$1:***@').replaceAll(/(password=)[^&]*/g, '$1***');
  }
}
