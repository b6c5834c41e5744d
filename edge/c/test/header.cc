// The header is C++, too.
#include "../edge.h"

int main()
{
	edge_config config = {};
	config.size = sizeof config;
	config.socket = "/nonexistent";
	edge_device *device = nullptr;
	return edge_open(&device, &config, 0) == EDGE_ERR_NO_DAEMON ? 0 : 1;
}
