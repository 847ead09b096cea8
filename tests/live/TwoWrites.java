// SPDX-License-Identifier: GPL-2.0
/* A request in two writes and its answer, as test_flame.py traces it; client and server are threads of one process. */
import java.io.InputStream;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import javax.management.ObjectName;

public class TwoWrites {
	static final int WARM_UP = 20000, ROUNDS = 12;

	static void serve(ServerSocket listener) throws Exception {
		try (Socket socket = listener.accept()) {
			byte[] request = new byte[13];
			socket.setTcpNoDelay(true);
			while (socket.getInputStream().readNBytes(request, 0, request.length) == request.length)
				socket.getOutputStream().write(1);
		}
	}

	static void writeBody(OutputStream out) throws Exception {
		out.write(new byte[7]);
	}

	static void request(OutputStream out, InputStream in) throws Exception {
		out.write(new byte[6]);
		writeBody(out);
		in.read();
	}

	/* What `jcmd PID Compiler.perfmap` does: the names of compiled code, as /tmp/perf-PID.map. */
	static void writeMap() throws Exception {
		ManagementFactory.getPlatformMBeanServer().invoke(
			new ObjectName("com.sun.management:type=DiagnosticCommand"), "compilerPerfmap", null, null);
	}

	public static void main(String[] arguments) throws Exception {
		ServerSocket listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
		Thread server = new Thread(() -> {
			try {
				serve(listener);
			} catch (Exception e) {
				e.printStackTrace();
			}
		});
		server.start();
		try (Socket socket = new Socket(listener.getInetAddress(), listener.getLocalPort())) {
			OutputStream out = socket.getOutputStream();
			InputStream in = socket.getInputStream();
			/* until it is compiled; with TCP_NODELAY, so that nothing is held */
			socket.setTcpNoDelay(true);
			for (int i = 0; i < WARM_UP; i++)
				request(out, in);
			socket.setTcpNoDelay(false);
			System.out.println("ready");
			System.in.read();
			for (int i = 0; i < ROUNDS; i++)
				request(out, in);
			writeMap();
			System.out.println("done");
			System.in.read();
		}
		server.join();
	}
}
