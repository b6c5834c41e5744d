/* The packets and rings of docs/ABI.md. All is little endian, and so is every processor that this is built for. */
#ifndef EDGE_ABI_H
#define EDGE_ABI_H

#include <stddef.h>
#include <stdint.h>

#include "abi_const.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "libedge is for little-endian processors"
#endif

enum { ABI_PACKET = 2048 }; /* receives all that is not JSON (A10.1) */
enum { ABI_REPLY = 1, ABI_FAILED = 2, ABI_OWN = 1, ABI_HEAP = 2, ABI_ORDERED = 1, ABI_OVERLAP = 2 };

struct abi_header { /* A3.1 */
	uint32_t size;
	uint16_t kind, flags;
	uint64_t id;
};

struct abi_str { uint16_t size; char bytes[ABI_STR]; };
struct abi_data { uint16_t size; char bytes[ABI_DATA]; };
struct abi_text { uint16_t size; char bytes[ABI_TEXT]; };

/* A5, in its order */
struct abi_hello {
	struct abi_header h;
	uint32_t lowest, highest;
	uint64_t features, required;
	uint32_t depth, shard;
	uint16_t sqe_size, cqe_size;
	uint32_t zero;
	struct abi_str name;
	char pad[6];
};
struct abi_hello_reply {
	struct abi_header h;
	uint32_t version, window;
	uint64_t features;
	uint32_t sq_entries, cq_entries;
	uint16_t sqe_size, cqe_size;
	uint32_t shard;
	struct abi_str node, name;
	char pad[4];
};
struct abi_register { struct abi_header h; uint64_t size; uint32_t flags, zero; uint64_t address; };
struct abi_register_reply { struct abi_header h; uint64_t size; uint32_t region, zero; };
struct abi_region { struct abi_header h; uint32_t region, zero; };
struct abi_dial {
	struct abi_header h;
	uint64_t timeout;
	uint32_t flags, domain;
	struct abi_str peer, service, scheduler;
	struct abi_data data;
};
struct abi_conn_reply {
	struct abi_header h;
	uint32_t conn, zero;
	struct abi_str peer;
	struct abi_data data;
	char pad[4];
	struct abi_str node;
	char pad2[6];
};
struct abi_service { struct abi_header h; struct abi_str service; char pad[6]; };
struct abi_accept { struct abi_header h; uint32_t conn, domain; struct abi_data data; char pad[6]; };
struct abi_refuse { struct abi_header h; uint32_t conn, zero; struct abi_text text; char pad[6]; };
struct abi_export {
	struct abi_header h;
	uint64_t off, size;
	uint32_t conn, region, perm, domain;
	struct abi_str name;
	char pad[6];
	uint64_t base;
	uint32_t high, zero;
};
struct abi_export_reply { struct abi_header h; uint64_t key, size; uint32_t conn, zero; };
struct abi_revoke { struct abi_header h; uint64_t key; uint32_t conn, zero; };
struct abi_conn { struct abi_header h; uint32_t conn, zero; };
struct abi_queue { struct abi_header h; uint32_t queue, zero; };
struct abi_join { struct abi_header h; uint32_t conn, queue; };
struct abi_incoming {
	struct abi_header h;
	uint32_t conn, user; /* 1 + the user, 0: another node's */
	struct abi_str service, peer;
	struct abi_data data;
	char pad[2];
	struct abi_str node;
	char pad2[6];
};
struct abi_advert {
	struct abi_header h;
	uint64_t key, size;
	uint32_t conn, perm, number, zero;
	struct abi_str name;
	char pad[6];
};
struct abi_closed { struct abi_header h; uint32_t conn, status; struct abi_text text; char pad[6]; };
struct abi_failed { struct abi_header h; uint32_t status, zero; struct abi_text text; char pad[6]; };

union abi_packet {
	struct abi_header h;
	struct abi_hello_reply hello;
	struct abi_register_reply registered;
	struct abi_conn_reply conn_reply;
	struct abi_export_reply exported;
	struct abi_revoke withdrawn;
	struct abi_queue queue;
	struct abi_incoming incoming;
	struct abi_advert advert;
	struct abi_closed closed;
	struct abi_failed failed;
	char bytes[ABI_PACKET];
};

#define ABI_IS(type, size) _Static_assert(sizeof(struct type) == size, #type)
ABI_IS(abi_header, 16);
ABI_IS(abi_hello, 128);
ABI_IS(abi_hello_reply, 184);
ABI_IS(abi_register, 40);
ABI_IS(abi_register_reply, 32);
ABI_IS(abi_region, 24);
ABI_IS(abi_dial, 744);
ABI_IS(abi_conn_reply, 680);
ABI_IS(abi_service, 88);
ABI_IS(abi_accept, 544);
ABI_IS(abi_refuse, 1056);
ABI_IS(abi_export, 136);
ABI_IS(abi_export_reply, 40);
ABI_IS(abi_revoke, 32);
ABI_IS(abi_conn, 24);
ABI_IS(abi_queue, 24);
ABI_IS(abi_join, 24);
ABI_IS(abi_incoming, 744);
ABI_IS(abi_advert, 120);
ABI_IS(abi_closed, 1056);
ABI_IS(abi_failed, 1056);
#undef ABI_IS
_Static_assert(offsetof(struct abi_hello, name) == 56 && offsetof(struct abi_hello_reply, name) == 114, "A5.1, A5.2");
_Static_assert(offsetof(struct abi_dial, data) == 230 && offsetof(struct abi_conn_reply, data) == 90, "A5.6, A5.7");
_Static_assert(offsetof(struct abi_conn_reply, node) == 608 && offsetof(struct abi_incoming, node) == 672 &&
               offsetof(struct abi_export, base) == 120, "A5.7, A5.11, A5.15");
_Static_assert(offsetof(struct abi_incoming, data) == 156 && offsetof(struct abi_advert, name) == 48, "A5.15, A5.16");

/* A6 */
enum { ABI_SQ_TAIL = 0, ABI_SQ_HEAD = 128, ABI_CQ_TAIL = 256, ABI_CQ_HEAD = 384, ABI_DAEMON_ASLEEP = 512,
       ABI_CLIENT_ASLEEP = 640, ABI_AWAITS = 704, ABI_CLIENT_POLLING = 768, ABI_PULSE = 896, ABI_TOLD = 960,
       ABI_WORDS_AT = 1024, ABI_WORDS_APART = 32, ABI_RINGS = 4096 };
enum { ABI_HAS_IMM = 1, ABI_TELLS = 2 }; /* flags of a completion (A6.11) */

struct abi_piece { uint32_t region, length; uint64_t off; }; /* A6.14 */

struct abi_sqe { /* A6.6 */
	uint8_t op, flags, inline_len, zero;
	uint32_t conn, imm, zero2;
	uint64_t token, key, remote_off;
	union {
		struct { uint32_t region, zero; uint64_t off, length; } local;
		struct { uint8_t func, size, zero[6]; uint64_t operand, compare; } atomic; /* A6.13 */
		uint8_t bytes[24];
	} u;
};
struct abi_pieces { /* A6.14 */
	uint8_t op, zero, count, zero2;
	uint32_t conn;
	uint64_t zero3;
	struct abi_piece piece[ABI_IN_ENTRY];
};
struct abi_bytes { /* A6.19 */
	uint8_t op, zero, count, zero2;
	uint32_t conn;
	uint8_t bytes[ABI_BYTES_IN_ENTRY];
};
struct abi_cqe { /* A6.11 */
	uint8_t kind, status;
	uint16_t flags;
	uint32_t conn;
	uint64_t token;
	uint32_t imm, length;
	uint64_t offset;
};
_Static_assert(sizeof(struct abi_pieces) == ABI_SQE_SIZE && sizeof(struct abi_bytes) == ABI_SQE_SIZE &&
               sizeof(struct abi_sqe) == ABI_SQE_SIZE && sizeof(struct abi_cqe) == ABI_CQE_SIZE, "A6.6, A6.11");

#endif
