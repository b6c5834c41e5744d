"""What verdict.sh runs: servers and clients whose connections are decided in the first moments. Each client prints what
is wrong and ends with 1. SLOW is far below the 2 s that a connection without an answer takes."""
import ctypes
import errno
import os
import socket
import sys
import threading
import time

SLOW = 1.5


def listener(port, address="10.78.0.2"):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, port))
    s.listen(64)
    return s


def connect(port, timeout=10):
    return socket.create_connection(("10.78.0.2", port), timeout)


def timed(what, port, want, first=b""):
    """One connection, on which first is sent and want comes in time."""
    began = time.monotonic()
    s = connect(port)
    if first:
        s.sendall(first)
    got = b""
    while len(got) < len(want) or not want:
        more = s.recv(100)
        if not more:
            break
        got += more
    took = time.monotonic() - began
    s.close()
    if got != want or took > SLOW:
        sys.exit("%s: got %r after %.2f s, want %r" % (what, got, took, want))


def serve_raw(port):
    """Closes each connection; every second one gets bytes first by a call that does not pass the C library."""
    libc = ctypes.CDLL(None)
    l, n = listener(port), 0
    while True:
        c, _ = l.accept()
        n += 1
        if n % 2 == 0:
            libc.syscall(1, c.fileno(), b"hello", 5)
        c.close()


def client_raw(port):
    for i in range(4):
        timed("connection %d" % i, port, b"hello" if i % 2 else b"")


def serve_first(port):
    """Its first write does not wait."""
    l = listener(port)
    while True:
        c, _ = l.accept()
        c.setblocking(False)
        try:
            c.send(b"welcome")
            c.close()  # the bytes are on their way nevertheless
        except BlockingIOError:
            c.close()


def client_first(port):
    s = connect(port)
    s.send(b"x", socket.MSG_DONTWAIT)
    s.close()
    for i in range(20):
        timed("welcome %d" % i, port, b"welcome")


def serve_busy(port):
    """Accepts, and does not look at what it accepted while another connection makes it work."""
    l = listener(port)
    c, _ = l.accept()
    c.sendall(c.recv(1))
    c.recv(1)  # lets it be busy
    c.sendall(b"busy")
    busy = time.monotonic() + 1.2
    while time.monotonic() < busy:
        pass
    while True:
        c, _ = l.accept()
        got = c.recv(100)
        os.close(os.open("held", os.O_WRONLY))
        c.sendall(got)
        c.close()


def client_busy(port):
    first = connect(port)
    first.sendall(b"1")
    first.recv(1)
    first.sendall(b"2")
    first.recv(4)
    began = time.monotonic()
    s = socket.socket()
    s.settimeout(1)
    s.connect(("10.78.0.2", port))
    took = time.monotonic() - began
    if took > 0.8:
        sys.exit("connected after %.2f s" % took)
    s.setblocking(False)
    if s.send(b"held") != 4:
        sys.exit("the first write was not taken")
    os.close(os.open("held", os.O_RDONLY))  # the program is elsewhere; what it wrote leaves, and the server says so
    s.settimeout(10)
    if s.recv(100) != b"held":
        sys.exit("the answer is wrong")


def serve_echo(port, address="10.78.0.2"):
    l = listener(port, address)
    l.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 16)
    while True:
        c, _ = l.accept()
        try:
            c.sendall(c.recv(100))
        except ConnectionError:
            pass
        c.close()


def serve_elsewhere(port):
    serve_echo(port, "127.0.0.1")


def client_echo(port):
    for i in range(3):
        timed("connection %d" % i, port, b"x", b"x")


def client_fast(port):
    for i in range(4):
        began = time.monotonic()
        s = socket.socket()
        s.settimeout(10)
        s.setsockopt(socket.IPPROTO_TCP, 30, 1)  # TCP_FASTOPEN_CONNECT
        s.connect(("10.78.0.2", port))
        s.sendall(b"x")
        if s.recv(1) != b"x" or time.monotonic() - began > SLOW:
            sys.exit("connection %d took %.2f s" % (i, time.monotonic() - began))
        s.close()


def client_refused(port):
    try:
        s = connect(port)
        s.sendall(b"password")
        got = s.recv(100)
    except ConnectionError:
        return
    sys.exit("the connection works over TCP: %r" % got)



def client_evades(port):
    """Connects again by a socket that was refused, by one with a second descriptor, and by its first bytes."""
    for way in "again", "dup", "fastopen":
        s = socket.socket()
        twin = s.dup() if way == "dup" else None
        try:
            if way == "again":
                s.connect_ex(("10.78.0.2", 1))  # nobody listens
            if way == "fastopen":
                s.sendto(b"password", socket.MSG_FASTOPEN, ("10.78.0.2", port))
            else:
                s.connect(("10.78.0.2", port))
                s.sendall(b"password")
            got = s.recv(100)
        except OSError as e:
            if e.errno not in (errno.ECONNREFUSED, errno.EOPNOTSUPP, errno.ECONNRESET):
                raise
            continue
        sys.exit("%s: the connection works over TCP: %r" % (way, got))


globals()[sys.argv[1]](int(sys.argv[2]))
