// SPDX-License-Identifier: GPL-2.0
// A panel of each type that the dashboards have, with the settings of Grafana's own where the dashboard names none.

import {
	FieldColorModeId, FieldType, applyFieldOverrides, cacheFieldDisplayNames, getFieldDisplayValues, renderMarkdown, standardTransformers,
	standardTransformersRegistry, transformDataFrame,
} from '@grafana/data';
import {BigValue, EventsCanvas, TimeSeries} from '@grafana/ui';
import {TableNG} from '@grafana/ui/unstable';
import {useMemo} from 'react';
import {lastValueFrom} from 'rxjs';

import {asExemplars, asFrames} from './frames.js';
import {HeatMap} from './heatmap.jsx';

// ---- settings ----

const GRAPH = {
	drawStyle: 'line', lineInterpolation: 'linear', lineWidth: 1, fillOpacity: 0, gradientMode: 'none', pointSize: 5,
	showPoints: 'auto', spanNulls: false, insertNulls: false, axisPlacement: 'auto', axisColorMode: 'text',
	axisBorderShow: false, axisCenteredZero: false, axisLabel: '', scaleDistribution: {type: 'linear'},
	stacking: {mode: 'none', group: 'A'}, thresholdsStyle: {mode: 'off'}, hideFrom: {legend: false, tooltip: false, viz: false},
};
const GREEN_THEN_RED = {mode: 'absolute', steps: [{color: 'green', value: null}, {color: 'red', value: 80}]};
const DEFAULTS = {
	timeseries: {color: {mode: FieldColorModeId.PaletteClassic}, custom: GRAPH, thresholds: GREEN_THEN_RED},
	stat: {color: {mode: FieldColorModeId.Thresholds}, thresholds: GREEN_THEN_RED},
	table: {color: {mode: FieldColorModeId.Thresholds}, thresholds: GREEN_THEN_RED,
		custom: {align: 'auto', cellOptions: {type: 'auto'}, inspect: false}},
	heatmap: {},
	text: {},
};

function withDefaults({type, fieldConfig}) {
	const own = fieldConfig?.defaults ?? {};
	const base = DEFAULTS[type];
	const thresholds = structuredClone(own.thresholds ?? base.thresholds);
	return {
		defaults: {...base, ...own, thresholds, custom: {...base.custom, ...own.custom}},
		overrides: fieldConfig?.overrides ?? [],
	};
}

// Grafana registers each setting with its editor; here each that is set is taken as it is.
class Settings {
	constructor({defaults, overrides}) {
		const ids = [
			...Object.keys(defaults).filter((name) => name !== 'custom'),
			...Object.keys(defaults.custom).map((name) => `custom.${name}`),
			...overrides.flatMap(({properties}) => properties.map(({id}) => id)),
		];
		this.items = new Map(ids.map((id) => [id, {
			id, path: id.replace(/^custom\./, ''), isCustom: id.startsWith('custom.'), settings: {},
			process: (value) => value, shouldApply: () => true,
		}]));
	}
	getIfExists(id) {
		return this.items.get(id);
	}
	list() {
		return [...this.items.values()];
	}
}

for (const transformer of [standardTransformers.mergeTransformer, standardTransformers.organizeFieldsTransformer]) {
	standardTransformersRegistry.register({id: transformer.id, name: transformer.name, editor: null,
		transformation: () => transformer});
}

// ---- data ----

// What is drawn of a panel: its frames, with everything applied that the dashboard says of their fields.
export async function prepare(panel, {answers, step, theme, interpolate}) {
	if (!(panel.type in DEFAULTS)) {
		throw new Error(`no component draws a panel of type ${panel.type}`);
	}
	const frames = asFrames(panel, answers, step);
	const context = {interpolate};
	const data = panel.transformations?.length
		? await lastValueFrom(transformDataFrame(panel.transformations, frames, context)) : frames;
	const fieldConfig = withDefaults(panel);
	const drawn = applyFieldOverrides({
		data, fieldConfig, fieldConfigRegistry: new Settings(fieldConfig), replaceVariables: interpolate, theme, timeZone: 'utc',
	});
	cacheFieldDisplayNames(drawn);
	return {fieldConfig, frames: drawn, exemplars: asExemplars(answers)};
}

function isEmpty(frames) {
	return !frames.some(({fields}) => fields.some(({type, values}) => type === FieldType.number && values.length));
}

function NoData({panel}) {
	return <div data-no-data="" style={{display: 'grid', placeItems: 'center', height: '100%', opacity: 0.7}}>
		{panel.fieldConfig.defaults.noValue ?? 'No data'}</div>;
}

// ---- panels ----

function Diamond({color}) {
	return <svg width="7" height="7" style={{display: 'block', transform: 'translate(-50%, -50%)'}}>
		<rect x="1" y="1" width="5" height="5" fill={color} transform="rotate(45 3.5 3.5)"/>
	</svg>;
}

function Exemplars({config, exemplars, color}) {
	const [time, value] = exemplars.fields;
	return <EventsCanvas id="exemplars" config={config} events={[exemplars]}
		renderEventMarker={() => <Diamond color={color}/>}
		mapEventToXYCoords={(_, i) => {
			const plot = Exemplars.plots.get(config);
			const [{props: {scaleKey}}] = config.getSeries();
			return plot && {x: plot.valToPos(time.values[i], 'x'), y: plot.valToPos(value.values[i], scaleKey)};
		}}/>;
}
Exemplars.plots = new WeakMap();

// As Grafana does: what is no number, a quantile of nothing, is a gap.
function finite(frame) {
	const fields = frame.fields.map((field) => field.type !== FieldType.number ? field :
		{...field, values: field.values.map((value) => Number.isFinite(value) ? value : null)});
	return {...frame, fields};
}

function Graph({panel, data, width, height, range, theme}) {
	const {showLegend, ...legend} = panel.options.legend;
	const frames = useMemo(() => data.frames.map(finite), [data]);
	return <TimeSeries frames={frames} width={width} height={height} timeRange={range} timeZone="utc" theme={theme}
		legend={{...legend, showLegend}} options={panel.options}>
		{(config) => {
			config.addHook('init', (plot) => Exemplars.plots.set(config, plot));
			return data.exemplars.length ?
				<Exemplars config={config} exemplars={data.exemplars} color={theme.visualization.getColorByName('blue')}/> : null;
		}}
	</TimeSeries>;
}

function Stat({panel, data, width, height, theme, interpolate}) {
	const {reduceOptions, ...options} = panel.options;
	const [value] = getFieldDisplayValues({
		data: data.frames, fieldConfig: data.fieldConfig, reduceOptions, replaceVariables: interpolate, theme,
		sparkline: options.graphMode !== 'none', timeZone: 'utc',
	});
	return <BigValue {...options} value={value.display} sparkline={value.sparkline} width={width} height={height} count={1}
		theme={theme}/>;
}

function Rows({panel, data, width, height}) {
	return <TableNG data={data.frames[0]} width={width} height={height} sortBy={panel.options.sortBy}
		noHeader={!panel.options.showHeader} cellHeight={panel.options.cellHeight} fieldConfig={data.fieldConfig}
		enableVirtualization={false}/>;
}

function Words({panel, interpolate}) {
	const html = renderMarkdown(interpolate(panel.options.content, {}, 'text'));
	return <div className="markdown-html" style={{overflow: 'auto', height: '100%'}} dangerouslySetInnerHTML={{__html: html}}/>;
}

const TYPES = {timeseries: Graph, stat: Stat, table: Rows, text: Words, heatmap: HeatMap};

export function Panel(props) {
	const Type = TYPES[props.panel.type];
	const empty = !['stat', 'text'].includes(props.panel.type) && isEmpty(props.data.frames);
	return empty ? <NoData panel={props.panel}/> : <Type {...props}/>;
}
