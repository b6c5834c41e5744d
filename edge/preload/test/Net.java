import java.io.*;
import java.net.*;
import java.net.http.*;
import java.nio.ByteBuffer;
import java.nio.channels.*;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import com.sun.net.httpserver.HttpServer;

/**
 * Net serve ADDRESS PORT: an echo server by one selector, and at the next port an HTTP server of four threads that
 * answers with what it is sent. Net ADDRESS PORT FILE: their clients, 20 connections by a selector, 4 by threads with
 * time limits and one by an asynchronous channel; then 8 requests at once by HttpClient. Every byte is compared.
 */
public class Net {
    static final int SIZE = 300_000;

    public static void main(String[] args) throws Exception {
        if (args[0].equals("serve")) {
            int port = Integer.parseInt(args[2]);
            http(new InetSocketAddress(args[1], port + 1));
            serve(new InetSocketAddress(args[1], port));
            return;
        }
        InetSocketAddress server = new InetSocketAddress(args[0], Integer.parseInt(args[1]));
        select(server, 20);
        threads(server, 4);
        asynchronous(server);
        URI uri = new URI("http", null, args[0], server.getPort() + 1, "/", null, null);
        requests(uri, Files.readAllBytes(Path.of(args[2])), 8);
        System.out.println("25 connections, " + SIZE + " bytes there and back; 8 requests");
    }

    static void serve(InetSocketAddress at) throws IOException {
        Selector selector = Selector.open();
        ServerSocketChannel listener = ServerSocketChannel.open().bind(at, 128);
        listener.configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        while (true) {
            selector.select();
            for (SelectionKey key : selector.selectedKeys()) {
                if (key.isAcceptable()) {
                    SocketChannel c = listener.accept();
                    if (c == null) continue;
                    c.configureBlocking(false);
                    c.register(selector, SelectionKey.OP_READ, ByteBuffer.allocateDirect(65536));
                } else {
                    echo(key);
                }
            }
            selector.selectedKeys().clear();
        }
    }

    static void http(InetSocketAddress at) throws IOException {
        HttpServer server = HttpServer.create(at, 128);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.createContext("/", x -> {
            byte[] body = x.getRequestBody().readAllBytes();
            x.sendResponseHeaders(200, body.length);
            x.getResponseBody().write(body);
            x.close();
        });
        server.start();
    }

    /** Reads what has come if all before it is written, and writes what the connection takes. */
    static void echo(SelectionKey key) throws IOException {
        SocketChannel c = (SocketChannel) key.channel();
        ByteBuffer held = (ByteBuffer) key.attachment();
        if (key.isReadable()) {
            held.clear();
            if (c.read(held) < 0) {
                c.close();
                return;
            }
            held.flip();
        }
        c.write(held);
        key.interestOps(held.hasRemaining() ? SelectionKey.OP_WRITE : SelectionKey.OP_READ);
    }

    static byte[] bytes(int seed) {
        byte[] b = new byte[SIZE];
        new Random(seed).nextBytes(b);
        return b;
    }

    static void same(byte[] want, byte[] got) {
        if (!Arrays.equals(want, got)) throw new IllegalStateException("other bytes came back");
    }

    static void select(InetSocketAddress server, int count) throws IOException {
        Selector selector = Selector.open();
        ByteBuffer[] out = new ByteBuffer[count], in = new ByteBuffer[count];
        for (int i = 0; i < count; i++) {
            out[i] = ByteBuffer.wrap(bytes(i));
            in[i] = ByteBuffer.allocate(SIZE);
            SocketChannel c = SocketChannel.open();
            c.configureBlocking(false);
            boolean connected = c.connect(server);
            int wanted = SelectionKey.OP_READ | SelectionKey.OP_WRITE;
            c.register(selector, connected ? wanted : SelectionKey.OP_CONNECT, i);
        }
        for (int left = count; left > 0;) {
            selector.select();
            for (SelectionKey key : selector.selectedKeys()) {
                int i = (Integer) key.attachment();
                SocketChannel c = (SocketChannel) key.channel();
                if (key.isConnectable() && c.finishConnect()) {
                    key.interestOps(SelectionKey.OP_READ | SelectionKey.OP_WRITE);
                    continue;
                }
                if (key.isWritable()) {
                    c.write(out[i]);
                    if (!out[i].hasRemaining()) key.interestOps(SelectionKey.OP_READ);
                }
                if (key.isReadable() && c.read(in[i]) < 0) throw new EOFException();
                if (!in[i].hasRemaining()) {
                    same(out[i].array(), in[i].array());
                    c.close();
                    left--;
                }
            }
            selector.selectedKeys().clear();
        }
    }

    static void threads(InetSocketAddress server, int count) throws Exception {
        ExecutorService pool = Executors.newCachedThreadPool();
        List<Future<Void>> all = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            byte[] sent = bytes(100 + i);
            all.add(pool.submit(() -> {
                try (Socket s = new Socket()) {
                    s.connect(server, 30_000);
                    s.setSoTimeout(40_000);
                    Future<Void> writer = pool.submit(() -> {
                        s.getOutputStream().write(sent);
                        s.shutdownOutput();
                        return null;
                    });
                    same(sent, s.getInputStream().readNBytes(SIZE));
                    writer.get();
                    if (s.getInputStream().read() != -1) throw new IllegalStateException("no end of file");
                }
                return null;
            }));
        }
        for (Future<Void> f : all) f.get();
        pool.shutdown();
    }

    static void asynchronous(InetSocketAddress server) throws Exception {
        try (AsynchronousSocketChannel c = AsynchronousSocketChannel.open()) {
            c.connect(server).get(30, TimeUnit.SECONDS);
            ByteBuffer in = ByteBuffer.allocate(SIZE), out = ByteBuffer.wrap(bytes(200));
            while (in.hasRemaining()) {
                Future<Integer> read = c.read(in);
                if (out.hasRemaining()) c.write(out).get(40, TimeUnit.SECONDS);
                if (read.get(40, TimeUnit.SECONDS) < 0) throw new EOFException();
            }
            same(out.array(), in.array());
        }
    }

    static void requests(URI uri, byte[] file, int count) throws Exception {
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        HttpRequest request = HttpRequest.newBuilder(uri).POST(HttpRequest.BodyPublishers.ofByteArray(file)).build();
        List<CompletableFuture<HttpResponse<byte[]>>> all = new ArrayList<>();
        for (int i = 0; i < count; i++) all.add(client.sendAsync(request, HttpResponse.BodyHandlers.ofByteArray()));
        for (var f : all) same(file, f.get(30, TimeUnit.SECONDS).body());
    }
}
