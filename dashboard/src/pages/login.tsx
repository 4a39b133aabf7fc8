import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { loadMe, send } from '../api.ts';

export function Login(): JSX.Element {
  const [error, setError] = useState('');
  const [isBusy, setBusy] = useState(false);
  const logIn = async (event: Event): Promise<void> => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    setBusy(true);
    try {
      await send('POST', 'login', { name: form.get('name'), password: form.get('password') });
      await loadMe();
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
    }
    setBusy(false);
  };
  return (
    <main class="login">
      <form class="card" onSubmit={(event) => void logIn(event)}>
        <img src="icon.svg" alt="" width="44" height="44" />
        <h1 tabIndex={-1}>Log in to Pawl</h1>
        <label>
          Name
          <input name="name" autoComplete="username" required />
        </label>
        <label>
          Password
          <input name="password" type="password" autoComplete="current-password" required />
        </label>
        {error !== '' && (
          <p class="tone-bad badge" role="alert">
            {error}
          </p>
        )}
        <button type="submit" class="primary" disabled={isBusy}>
          Log in
        </button>
      </form>
    </main>
  );
}
