// SPDX-License-Identifier: GPL-2.0
/* A request in two writes and its answer, as test_flame.py traces it; client and server are in one process. */
'use strict';
const net = require('net');

const WARM_UP = 20000, ROUNDS = 12;

function serve(socket) {
	let came = 0;

	socket.setNoDelay(true);
	socket.on('data', (data) => {
		came += data.length;
		if (came === 13) {
			came = 0;
			socket.write('x');
		}
	});
}

function writeBody(socket) {
	socket.write(Buffer.alloc(7));
}

/* A write that comes before the last one is done is put in line, and made by nobody's call. */
function request(socket) {
	return new Promise((answered) => {
		socket.once('data', answered);
		socket.write(Buffer.alloc(6), () => writeBody(socket));
	});
}

async function rounds(socket, n) {
	for (let i = 0; i < n; i++)
		await request(socket);
}

const server = net.createServer(serve).listen(0, '127.0.0.1', () => {
	const socket = net.connect(server.address().port, '127.0.0.1', async () => {
		/* until it is compiled; with TCP_NODELAY, so that nothing is held */
		socket.setNoDelay(true);
		await rounds(socket, WARM_UP);
		socket.setNoDelay(false);
		console.log('ready');
		process.stdin.once('data', async () => {
			await rounds(socket, ROUNDS);
			console.log('done');
		});
	});
});
