import { render } from 'preact';
import 'uplot/dist/uPlot.min.css';
import '../style/index.css';
import { App } from './app.tsx';
import { startKeys } from './keys.ts';
import { startRouter } from './router.ts';
import { startVisible } from './text/visible.ts';
import { startTheme } from './theme.ts';

startVisible();
startTheme();
startRouter();
startKeys();
const root = document.getElementById('app');
if (root !== null) render(<App />, root);
