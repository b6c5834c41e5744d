/* Words for what programs print, and conversions of rates. */
#include <string.h>

#include "lib.h"

#define WORD(list, i) ((unsigned)(i) < sizeof list / sizeof *list && list[i] != NULL ? list[i] : "unknown")

EXPORT const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	static const char *const words[] = { [IBV_WC_SUCCESS] = "success", [IBV_WC_LOC_LEN_ERR] = "local length error",
		[IBV_WC_LOC_QP_OP_ERR] = "local QP operation error",
		[IBV_WC_LOC_EEC_OP_ERR] = "local EE context operation error",
		[IBV_WC_LOC_PROT_ERR] = "local protection error", [IBV_WC_WR_FLUSH_ERR] = "Work Request Flushed Error",
		[IBV_WC_MW_BIND_ERR] = "memory management operation error", [IBV_WC_BAD_RESP_ERR] = "bad response error",
		[IBV_WC_LOC_ACCESS_ERR] = "local access error", [IBV_WC_REM_INV_REQ_ERR] = "remote invalid request error",
		[IBV_WC_REM_ACCESS_ERR] = "remote access error", [IBV_WC_REM_OP_ERR] = "remote operation error",
		[IBV_WC_RETRY_EXC_ERR] = "transport retry counter exceeded",
		[IBV_WC_RNR_RETRY_EXC_ERR] = "RNR retry counter exceeded",
		[IBV_WC_FATAL_ERR] = "fatal error", [IBV_WC_GENERAL_ERR] = "general error" };
	return WORD(words, status);
}

EXPORT const char *ibv_node_type_str(enum ibv_node_type type)
{
	static const char *const words[] = { [IBV_NODE_CA] = "InfiniBand channel adapter" };
	return WORD(words, type);
}

EXPORT const char *ibv_port_state_str(enum ibv_port_state state)
{
	static const char *const words[] = { "no state change (NOP)", "down", "init", "armed", "active", "active defer" };
	return WORD(words, state);
}

EXPORT const char *ibv_event_type_str(enum ibv_event_type type)
{
	static const char *const words[] = { [IBV_EVENT_CQ_ERR] = "CQ error",
		[IBV_EVENT_QP_FATAL] = "local work queue catastrophic error",
		[IBV_EVENT_QP_LAST_WQE_REACHED] = "last WQE reached", [IBV_EVENT_SRQ_LIMIT_REACHED] = "SRQ limit reached",
		[IBV_EVENT_DEVICE_FATAL] = "local catastrophic error", [IBV_EVENT_PORT_ACTIVE] = "port active",
		[IBV_EVENT_PORT_ERR] = "port error" };
	return WORD(words, type);
}

static const struct { enum ibv_rate rate; int mult, mbps; } rates[] = { { IBV_RATE_2_5_GBPS, 1, 2500 },
	{ IBV_RATE_5_GBPS, 2, 5000 }, { IBV_RATE_10_GBPS, 4, 10000 }, { IBV_RATE_20_GBPS, 8, 20000 },
	{ IBV_RATE_30_GBPS, 12, 30000 }, { IBV_RATE_40_GBPS, 16, 40000 }, { IBV_RATE_60_GBPS, 24, 60000 },
	{ IBV_RATE_80_GBPS, 32, 80000 }, { IBV_RATE_120_GBPS, 48, 120000 }, { IBV_RATE_25_GBPS, 10, 25781 },
	{ IBV_RATE_100_GBPS, 40, 103125 } };
enum { RATES = sizeof rates / sizeof *rates };

EXPORT int ibv_rate_to_mult(enum ibv_rate rate)
{
	for (int i = 0; i < RATES; i++)
		if (rates[i].rate == rate)
			return rates[i].mult;
	return -1;
}

EXPORT int ibv_rate_to_mbps(enum ibv_rate rate)
{
	for (int i = 0; i < RATES; i++)
		if (rates[i].rate == rate)
			return rates[i].mbps;
	return -1;
}

EXPORT enum ibv_rate mult_to_ibv_rate(int mult)
{
	for (int i = 0; i < RATES; i++)
		if (rates[i].mult == mult)
			return rates[i].rate;
	return IBV_RATE_MAX;
}

EXPORT enum ibv_rate mbps_to_ibv_rate(int mbps)
{
	for (int i = 0; i < RATES; i++)
		if (rates[i].mbps == mbps)
			return rates[i].rate;
	return IBV_RATE_MAX;
}
