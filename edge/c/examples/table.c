/* Writes a table into another host's memory, whose rows travel while later ones are made: table NODE SERVICE MEMORY
 *
 *	cc -o table table.c $(pkg-config --cflags --libs edge) */
#include <edge.h>
#include <stdio.h>

#define TRY(x) if ((err = (x)) < 0) return fprintf(stderr, "%s\n", edge_message(err)), 1

enum { ROW = 64, ROWS = 16 };

int main(int argc, char **argv)
{
	edge_device *dev;
	edge_conn *conn;
	edge_region *mem;
	edge_op op;
	edge_work w = { .kind = EDGE_WRITE, .size = ROW * ROWS };
	int err;
	if (argc != 4)
		return fprintf(stderr, "usage: table NODE SERVICE MEMORY\n"), 2;
	TRY(edge_open(&dev, NULL, 5000));
	TRY(edge_dial(dev, argv[1], argv[2], NULL, &conn, 5000));
	TRY(edge_register(dev, w.size, &mem, 5000));
	TRY(edge_import(conn, argv[3], &w.remote, 5000));
	w.local = mem;
	TRY(edge_compose(conn, &w, &op));
	for (int i = 0; i < ROWS; i++) {
		snprintf((char *)edge_region_bytes(mem) + ROW * i, ROW, "%d times %d is %d", i, i, i * i);
		while ((err = edge_wrote(&op, ROW * i, ROW)) == EDGE_ERR_AGAIN) /* the queue is full */
			edge_device_poll(dev);
		TRY(err);
	}
	TRY(edge_commit(&op, w.size, 0, 0)); /* now the peer sees it, whole */
	TRY(edge_op_wait(&op, 5000));
	TRY(edge_conn_close(conn, 5000));
	edge_conn_free(conn);
	edge_device_close(dev, 0);
	return 0;
}
