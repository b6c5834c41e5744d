/* Writes a line into another host's memory and notifies its owner: put NODE SERVICE MEMORY TEXT
 *
 *	cc -o put put.c $(pkg-config --cflags --libs edge) */
#include <edge.h>
#include <stdio.h>
#include <string.h>

#define TRY(x) if ((err = (x)) < 0) return fprintf(stderr, "put: %s\n", edge_message(err)), 1

int main(int argc, char **argv)
{
	edge_device *dev;
	edge_conn *conn;
	edge_region *line;
	edge_op op;
	edge_work w = { .kind = EDGE_WRITE, .flags = EDGE_NOTIFY, .imm = 7 };
	int err;
	if (argc != 5 || (w.size = strlen(argv[4])) == 0)
		return fprintf(stderr, "usage: put NODE SERVICE MEMORY TEXT\n"), 2;
	TRY(edge_open(&dev, NULL, 5000));
	TRY(edge_dial(dev, argv[1], argv[2], NULL, &conn, 5000));
	TRY(edge_import(conn, argv[3], &w.remote, 5000));
	TRY(edge_register(dev, w.size, &line, 5000));
	memcpy(edge_region_bytes(line), argv[4], w.size);
	w.local = line;
	TRY(edge_post(conn, &w, &op));
	TRY(edge_op_wait(&op, 5000)); /* the line is in the other host's memory */
	TRY(edge_conn_close(conn, 5000));
	edge_conn_free(conn);
	edge_device_close(dev, 0);
	return 0;
}
