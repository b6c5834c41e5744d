#include "textflag.h"

// func one(p *byte, n int)
TEXT ·one(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), R8
	MOVQ n+8(FP), CX
	XORQ AX, AX

line:
	PREFETCHT0 (R8)(AX*1)
	ADDQ       $64, AX
	CMPQ       AX, CX
	JB         line
	RET

// func four(a, b, c, d *byte, n int)
TEXT ·four(SB), NOSPLIT, $0-40
	MOVQ a+0(FP), R8
	MOVQ b+8(FP), R9
	MOVQ c+16(FP), R10
	MOVQ d+24(FP), R11
	MOVQ n+32(FP), CX
	XORQ AX, AX

line:
	PREFETCHT0 (R8)(AX*1)
	PREFETCHT0 (R9)(AX*1)
	PREFETCHT0 (R10)(AX*1)
	PREFETCHT0 (R11)(AX*1)
	ADDQ       $64, AX
	CMPQ       AX, CX
	JB         line
	RET

// func load(p *byte, n int)
TEXT ·load(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), R8
	MOVQ n+8(FP), CX
	XORQ AX, AX

line:
	PREFETCHT0 4096(R8)(AX*1)
	MOVBLZX    (R8)(AX*1), DX
	ADDQ       $64, AX
	CMPQ       AX, CX
	JB         line
	RET

// func vendor() uint32
TEXT ·vendor(SB), NOSPLIT, $0-4
	XORL AX, AX
	XORL CX, CX
	CPUID
	MOVL BX, ret+0(FP)
	RET
