// SPDX-License-Identifier: GPL-2.0
// What Prometheus answers as Grafana's data frames, in the shape that its Prometheus data source gives them.

import {FieldType, createDataFrame, renderLegendFormat} from '@grafana/data';

const numbers = (values) => values.map((value) => Number(value));

function seriesName(legend, labels) {
	if (legend) {
		return renderLegendFormat(legend, labels);
	}
	const pairs = Object.entries(labels).filter(([name]) => name !== '__name__').map(([name, value]) => `${name}="${value}"`);
	return pairs.length ? `{${pairs.join(', ')}}` : labels.__name__ || 'Value';
}

// A frame for each series of a graph or a number. step: ms; a gap of more than that is drawn as one.
function asSeries({target, result}, step) {
	return result.map(({metric, values, value}) => {
		const points = values || [value];
		const name = seriesName(target.legendFormat, metric);
		return createDataFrame({
			refId: target.refId,
			name,
			fields: [
				{name: 'Time', type: FieldType.time, values: points.map(([at]) => at * 1000), config: {interval: step}},
				{name: 'Value', type: FieldType.number, values: numbers(points.map(([, v]) => v)), labels: metric,
					config: {displayNameFromDS: name}},
			],
		});
	});
}

// One frame whose rows are the series: a column for each label, the last one for the value.
function asTable({target, result}, single) {
	const labels = [...new Set(result.flatMap(({metric}) => Object.keys(metric)))].sort();
	return createDataFrame({
		refId: target.refId,
		fields: [
			{name: 'Time', type: FieldType.time, values: result.map(({value}) => value[0] * 1000)},
			...labels.map((label) => ({name: label, type: FieldType.string, config: {filterable: true},
				values: result.map(({metric}) => metric[label] ?? '')})),
			{name: single ? 'Value' : `Value #${target.refId}`, type: FieldType.number,
				values: numbers(result.map(({value}) => value[1]))},
		],
	});
}

// A frame of the bounds in their order, each without what is below it: Prometheus counts all that is shorter.
function asBuckets({result}) {
	const bound = ({metric}) => metric.le === '+Inf' ? Infinity : Number(metric.le);
	const rows = [...result].sort((a, b) => bound(a) - bound(b));
	const times = [...new Set(rows.flatMap(({values}) => values.map(([at]) => at)))].sort((a, b) => a - b);
	let below = times.map(() => 0);
	const fields = rows.map((row) => {
		const at = new Map(row.values.map(([time, value]) => [time, Number(value)]));
		const counted = times.map((time, i) => at.get(time) ?? below[i]);
		const own = counted.map((value, i) => Math.max(0, value - below[i]));
		below = counted;
		return {name: row.metric.le, type: FieldType.number, values: own};
	});
	return createDataFrame({
		fields: [{name: 'Time', type: FieldType.time, values: times.map((time) => time * 1000)}, ...fields],
	});
}

// A row for each exemplar.
export function asExemplars(answers) {
	const found = answers.flatMap(({exemplars}) => exemplars || []);
	return createDataFrame({
		fields: [
			{name: 'Time', type: FieldType.time, values: found.map(({timestamp}) => timestamp * 1000)},
			{name: 'Value', type: FieldType.number, values: numbers(found.map(({value}) => value))},
		],
	});
}

export function asFrames(panel, answers, step) {
	switch (panel.type) {
	case 'table':
		return answers.map((answer) => asTable(answer, answers.length === 1));
	case 'heatmap':
		return answers.map(asBuckets);
	default:
		return answers.flatMap((answer) => asSeries(answer, step));
	}
}
