// SPDX-License-Identifier: GPL-2.0
// A dashboard as a page: `input` has the dashboard, what is chosen, and what Prometheus answered. When all is drawn, the
// element `html` has in data-told what is to be seen of each panel.

import {createTheme, dateTime} from '@grafana/data';
import {Combobox, GlobalStyles, Icon, InlineField, PanelChrome, Text, ThemeContext, ToolbarButton} from '@grafana/ui';
import {Component} from 'react';
import {createRoot} from 'react-dom/client';

import {Panel, prepare} from './panels.jsx';

// Grafana's grid, in px
const COLUMNS = 24, ROW = 30, GAP = 8, MARGIN = 16;

const {dashboard, theme: mode, width, from, to, chosen, answers, others} = window.input;
const theme = createTheme({colors: {mode}});
const range = {from: dateTime(from), to: dateTime(to), raw: {from: dateTime(from), to: dateTime(to)}};
const errors = [];
const note = (error) => errors.push(String(error?.stack || error));
window.addEventListener('error', (event) => note(event.error || event.message));
window.addEventListener('unhandledrejection', (event) => note(event.reason));

// What `$name`, `${name}` and `${name:format}` stand for. Of a row's own only links speak, which nobody follows here.
function interpolate(text, scoped, format) {
	return String(text).replace(/\$(?:\{(\w+)(?::(\w+))?\}|(\w+))/g, (all, name, own, short) => {
		const variable = chosen[name || short];
		if (!variable) {
			return all;
		}
		switch (own || format) {
		case 'text': return variable.text;
		case 'queryparam': return `var-${name}=${encodeURIComponent(variable.value)}`;
		default: return variable.value;
		}
	});
}

// ---- what is drawn ----

class Caught extends Component {
	state = {};
	static getDerivedStateFromError(error) {
		return {error};
	}
	render() {
		return this.state.error ? <pre data-error="">{String(this.state.error.stack)}</pre> : this.props.children;
	}
}

function place({x, y, w, h}) {
	const column = (width - 2 * MARGIN - (COLUMNS - 1) * GAP) / COLUMNS;
	return {
		position: 'absolute', left: x * (column + GAP), top: y * (ROW + GAP),
		width: w * column + (w - 1) * GAP, height: h * ROW + (h - 1) * GAP,
	};
}

function Row({panel}) {
	return <div style={{...place(panel.gridPos), display: 'flex', alignItems: 'center', gap: 8}} data-panel={panel.id}>
		<Icon name="angle-down"/><Text element="h3" variant="h5">{panel.title}</Text>
	</div>;
}

function Framed({panel, data}) {
	const at = place(panel.gridPos);
	return <div style={at} data-panel={panel.id}>
		<PanelChrome title={panel.title} description={panel.description} width={at.width} height={at.height}
			padding={panel.type === 'table' ? 'none' : 'md'}>
			{(innerWidth, innerHeight) => <Caught>
				{data.error ? <pre data-error="">{data.error}</pre> :
					<Panel panel={panel} data={data} width={innerWidth} height={innerHeight} range={range} theme={theme}
						step={answers[panel.id].step} interpolate={interpolate}/>}
			</Caught>}
		</PanelChrome>
	</div>;
}

function Variable({variable}) {
	const {text} = chosen[variable.name];
	return <InlineField label={variable.label}>
		<Combobox options={[{label: text, value: text}]} value={text} width="auto" minWidth={8} onChange={() => {}}/>
	</InlineField>;
}

function Head() {
	const minutes = Math.round((to - from) / 60000);
	return <header style={{padding: `${MARGIN}px ${MARGIN}px ${GAP}px`}}>
		<div style={{display: 'flex', alignItems: 'center', gap: 8, marginBottom: 12}}>
			<Text element="h1" variant="h3">{dashboard.title}</Text>
			<span style={{flex: 1}}/>
			{others.map((title) => <ToolbarButton key={title} icon="apps" variant="canvas">{title}</ToolbarButton>)}
			<ToolbarButton icon="clock-nine" variant="canvas">{`Last ${minutes} minutes`}</ToolbarButton>
			<ToolbarButton icon="sync" variant="canvas">{dashboard.refresh}</ToolbarButton>
		</div>
		<div style={{display: 'flex', flexWrap: 'wrap'}} data-variables="">
			{dashboard.templating.list.map((variable) => <Variable key={variable.name} variable={variable}/>)}
		</div>
	</header>;
}

function Page({prepared}) {
	const last = Math.max(...dashboard.panels.map(({gridPos: {y, h}}) => y + h));
	return <ThemeContext.Provider value={theme}>
		<GlobalStyles/>
		<Head/>
		<main style={{position: 'relative', margin: `0 ${MARGIN}px`, height: last * (ROW + GAP)}}>
			{dashboard.panels.map((panel) => panel.type === 'row' ? <Row key={panel.id} panel={panel}/> :
				<Framed key={panel.id} panel={panel} data={prepared[panel.id]}/>)}
		</main>
	</ThemeContext.Provider>;
}

// ---- what is to be seen ----

function ink(canvas) {
	const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width || 1, canvas.height || 1);
	return data.filter((value, i) => i % 4 === 3 && value).length;
}

const words = (elements) => [...elements].map((element) => element.textContent.trim());

// What has more in it than it shows: the end of a name, or of a text.
function cut(element) {
	const clipped = getComputedStyle(element).overflow !== 'visible';
	return clipped && (element.scrollWidth > element.clientWidth + 1 || element.scrollHeight > element.clientHeight + 1);
}

function look(element) {
	const box = element.getBoundingClientRect();
	const names = [...element.querySelectorAll('[data-testid^="data-testid VizLegend series"]')];
	const legend = element.querySelector('[data-testid="data-testid viz-layout-legend"]')?.getBoundingClientRect();
	const columns = [...element.querySelectorAll('[role=columnheader]')];
	return {
		text: element.textContent,
		error: element.querySelector('[data-error]')?.textContent ?? null,
		empty: Boolean(element.querySelector('[data-no-data]')),
		ink: [...element.querySelectorAll('canvas')].reduce((sum, canvas) => sum + ink(canvas), 0),
		legend: words(names),
		colours: names.map((name) => name.firstElementChild.style.background),
		columns: words(columns),
		cells: words(element.querySelectorAll('[role=gridcell]')),
		hidden: words([...names.filter((name) => name.getBoundingClientRect().bottom > legend.bottom + 1),
			...columns.filter((column) => column.getBoundingClientRect().right > box.right + 1)]),
		cut: words([...element.querySelectorAll('[data-testid^="data-testid VizLegend series"] *, [role=gridcell], [role=columnheader] *, .markdown-html')].filter(cut)),
		dots: element.querySelectorAll('svg rect[transform]').length,
		bottom: Math.ceil(box.bottom),
	};
}

async function main() {
	const prepared = {};
	for (const panel of dashboard.panels.filter(({type}) => type !== 'row')) {
		try {
			prepared[panel.id] = await prepare(panel, {...answers[panel.id], theme, interpolate});
		} catch (error) {
			prepared[panel.id] = {error: String(error.stack)};
		}
	}
	createRoot(document.getElementById('root')).render(<Page prepared={prepared}/>);
	await document.fonts.ready;
	await new Promise((done) => setTimeout(done, 3000)); // legends and tables measure themselves, then draw again
	const panels = Object.fromEntries([...document.querySelectorAll('[data-panel]')].map((element) =>
		[element.dataset.panel, look(element)]));
	document.documentElement.dataset.told = JSON.stringify({
		panels, errors, height: document.documentElement.scrollHeight,
		background: getComputedStyle(document.body).backgroundColor,
		variables: words(document.querySelectorAll('[data-variables] label')),
	});
}

main().catch((error) => {
	document.documentElement.dataset.told = JSON.stringify({panels: {}, errors: [...errors, String(error.stack)]});
});
