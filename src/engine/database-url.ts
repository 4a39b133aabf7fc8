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

/**
 * Whether node-postgres can read a URL. That of a socket may leave out its host: `postgres://user:password@/app?host=/run`. For
 * JavaScript alone, a user without a host is no URL.
 */
export function isReadableUrl(url: string): boolean {
  return URL.canParse(url) || URL.canParse(url.replace('@/', '@socket/'));
}
