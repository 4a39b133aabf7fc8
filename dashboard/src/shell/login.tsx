import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { get, loadMe, send } from '../data/api.ts';
import { Skeleton, Trouble } from '../parts/card.tsx';
import { useTitle } from '../text/title.ts';

/** The ways to log in that the server accepts. */
interface Ways {
  readonly password: boolean;
  readonly token: boolean;
}

/** Asks for the credentials that the server accepts: a name with its password, a token, or either. */
export function Login(): JSX.Element {
  useTitle('Log in');
  const [ways, setWays] = useState<Ways | undefined>();
  const [error, setError] = useState<Error | undefined>();
  const ask = (): void => {
    setError(undefined);
    get<Ways>('login').then(setWays, setError);
  };
  useEffect(ask, []);
  return (
    <main class="login">
      <div class="card">
        <img src="icon.svg" alt="" width="44" height="44" />
        <h1 tabIndex={-1}>Log in to Pawl</h1>
        {error !== undefined && <Trouble error={error} retry={ask} />}
        {ways === undefined ? error === undefined && <Skeleton /> : <Forms of={ways} />}
      </div>
    </main>
  );
}

function Forms({ of: { password, token } }: { readonly of: Ways }): JSX.Element {
  if (password && token)
    return (
      <>
        <PasswordForm />
        <details>
          <summary>With a token instead</summary>
          <TokenForm />
        </details>
      </>
    );
  if (password) return <PasswordForm />;
  if (token) return <TokenForm />;
  return (
    <p class="muted">
      This server has neither passwords nor tokens. Open the address that it printed at its start, or open the dashboard
      from the program that serves it.
    </p>
  );
}

function PasswordForm(): JSX.Element {
  return (
    <LoginForm>
      <label>
        Name
        <input name="name" autoComplete="username" required />
      </label>
      <label>
        Password
        <input name="password" type="password" autoComplete="current-password" required />
      </label>
    </LoginForm>
  );
}

function TokenForm(): JSX.Element {
  return (
    <LoginForm>
      <label>
        Token
        <input name="token" type="password" autoComplete="off" spellcheck={false} required />
      </label>
      <p class="small muted">One that the server was started with, or a JWT. This browser is given a cookie for it.</p>
    </LoginForm>
  );
}

/** Sends its fields under their names. */
function LoginForm({ children }: { readonly children: ComponentChildren }): JSX.Element {
  const [error, setError] = useState('');
  const [isBusy, setBusy] = useState(false);
  const logIn = async (form: FormData): Promise<void> => {
    setBusy(true);
    try {
      const token = form.get('token');
      // A token that was copied from a terminal often has a line end.
      const shown = typeof token === 'string' ? { token: token.trim() } : Object.fromEntries(form);
      await send('POST', 'login', shown);
      await loadMe();
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
    }
    setBusy(false);
  };
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        void logIn(new FormData(event.currentTarget));
      }}
    >
      {children}
      {error !== '' && (
        <p class="tone-bad badge" role="alert">
          {error}
        </p>
      )}
      <button type="submit" class="primary" disabled={isBusy}>
        Log in
      </button>
    </form>
  );
}
