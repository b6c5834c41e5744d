#!/usr/bin/env python3
"""Reads another host's memory: get.py NODE SERVICE MEMORY BYTES. libedge by ctypes alone."""
import ctypes
import os
import sys

lib = ctypes.CDLL(os.environ.get("LIBEDGE", "libedge.so.1"))
lib.edge_message.restype = ctypes.c_char_p
lib.edge_remote_size.restype = ctypes.c_uint64


def check(err):
    if err < 0:
        sys.exit(lib.edge_message(err).decode())


def main(node, service, memory, size):
    dev, conn, mem = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    check(lib.edge_open(ctypes.byref(dev), None, 5000))
    check(lib.edge_dial(dev, node.encode(), service.encode(), None, ctypes.byref(conn), 5000))
    check(lib.edge_import(conn, memory.encode(), ctypes.byref(mem), 5000))
    data = ctypes.create_string_buffer(min(int(size), lib.edge_remote_size(mem)))
    check(lib.edge_remote_read(mem, data, ctypes.c_size_t(len(data)), ctypes.c_uint64(0), 5000))
    print(data.raw)
    check(lib.edge_conn_close(conn, 5000))
    lib.edge_conn_free(conn)
    lib.edge_device_close(dev, 0)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
