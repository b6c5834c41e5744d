#include "textflag.h"

// func sumHeaders(b *byte) uint32
TEXT ·sumHeaders(SB), NOSPLIT, $0-12
	MOVQ   b+0(FP), SI
	MOVL   $0xffffffff, AX
	CRC32Q 0(SI), AX
	CRC32Q 8(SI), AX
	CRC32L 20(SI), AX
	CRC32Q 24(SI), AX
	CRC32Q 32(SI), AX
	CRC32Q 40(SI), AX
	CRC32Q 48(SI), AX
	CRC32Q 56(SI), AX
	NOTL   AX
	MOVL   AX, ret+8(FP)
	RET

// func features() uint32
TEXT ·features(SB), NOSPLIT, $0-4
	MOVL $1, AX
	XORL CX, CX
	CPUID
	MOVL CX, ret+0(FP)
	RET
