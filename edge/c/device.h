/* Devices as a whole: device.c; fork.c what a child of fork has of them. */
#ifndef EDGE_DEVICE_H
#define EDGE_DEVICE_H

#include "stream.h"

/* unlocked */
void fork_enter(edge_device *d);
void fork_leave(edge_device *d);

#endif
