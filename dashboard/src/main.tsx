import { render } from 'preact';
import 'uplot/dist/uPlot.min.css';
import '../style/index.css';
import { App } from './app.tsx';
import { startRouter } from './router.ts';
import { startKeys } from './shell/keys.ts';
import { startTheme } from './shell/theme.ts';
import { startVisible } from './text/visible.ts';

startVisible();
startTheme();
startRouter();
startKeys();
const root = document.getElementById('app');
if (root !== null) render(<App />, root);
