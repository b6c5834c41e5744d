/* Writes a line into another host's memory: put NODE SERVICE MEMORY TEXT
 *
 *	cc -o put put.c $(pkg-config --cflags --libs edge) */
#include <edge.h>
#include <stdio.h>
#include <string.h>

#define TRY(x) if ((err = (x)) < 0) return fprintf(stderr, "%s: %s\n", edge_strerror(err), edge_detail()), 1

int main(int argc, char **argv)
{
	edge_device *dev;
	edge_conn *conn;
	edge_remote *mem;
	int err;
	if (argc != 5)
		return fprintf(stderr, "usage: put NODE SERVICE MEMORY TEXT\n"), 2;
	TRY(edge_open(&dev, NULL, 5000));
	TRY(edge_dial(dev, argv[1], argv[2], NULL, &conn, 5000));
	TRY(edge_import(conn, argv[3], &mem, 5000));
	TRY(edge_remote_write(mem, argv[4], strlen(argv[4]) + 1, 0, 5000));
	TRY(edge_conn_close(conn, 5000));
	edge_conn_free(conn);
	edge_device_close(dev, 0);
	return 0;
}
