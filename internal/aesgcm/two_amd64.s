#include "textflag.h"

// AES-128-GCM on vectors of two blocks (VAES, VPCLMULQDQ, AVX2), 8 blocks a turn. It hashes, reduces and counts as
// four_amd64.s does, which says how, and differs where its processors do:
//
//   - AMD's Zen 3 takes as long for one carry-less multiplication as for four rounds of AES, so that a product has three
//     (Karatsuba): the middle one is of sums of halves, which a key has ready for its powers;
//   - of sixteen registers none is left for round keys, which are loaded anew for each round of a turn;
//   - no mask selects bytes, so additional data and the last, shorter turn are copied to the stack, behind which zeros
//     follow.
//
//	Y0-Y3    counters, then the key stream          Y12  mask that reverses the bytes of each block
//	Y4-Y7    ciphertext to be hashed                Y13  next two counters
//	Y8-Y10   product: low, middle, high halves      Y14, Y15  at hand
//	Y11      hash so far
//
//	AX *vectorKey   DI dst   SI src   CX bytes left   R8 additional data   R9 its bytes   R10 nonce   R11 tag
//	R12 powers to hash with   BX last byte of the first of the next counters   R13 bytes of additional data
//	R8, R9, R12, DX are at hand where they are not these
//
// Every byte of the source is read once: what Open lets out is what it has hashed, whoever else writes there. Registers
// are cleared at the end, since a signal handler's frame may keep them.

DATA reverse<>+0(SB)/8, $0x08090a0b0c0d0e0f
DATA reverse<>+8(SB)/8, $0x0001020304050607
GLOBL reverse<>(SB), RODATA|NOPTR, $16

DATA poly<>+0(SB)/8, $0xc200000000000000
DATA poly<>+8(SB)/8, $0
DATA poly<>+16(SB)/8, $0xc200000000000000
DATA poly<>+24(SB)/8, $0
GLOBL poly<>(SB), RODATA|NOPTR, $32

// The first two data blocks have the counters 2 and 3; 1 is the tag's. They are reversed.
DATA first<>+0(SB)/8, $1
DATA first<>+8(SB)/8, $0
DATA first<>+16(SB)/8, $2
DATA first<>+24(SB)/8, $0
GLOBL first<>(SB), RODATA|NOPTR, $32

// 2 in each lane, for reversed counters
DATA two<>+0(SB)/8, $2
DATA two<>+8(SB)/8, $0
DATA two<>+16(SB)/8, $2
DATA two<>+24(SB)/8, $0
GLOBL two<>(SB), RODATA|NOPTR, $32

// 2, 4, 6 and 8 in the last byte of each lane
DATA ahead<>+0(SB)/8, $0
DATA ahead<>+8(SB)/8, $0x0200000000000000
DATA ahead<>+16(SB)/8, $0
DATA ahead<>+24(SB)/8, $0x0200000000000000
DATA ahead<>+32(SB)/8, $0
DATA ahead<>+40(SB)/8, $0x0400000000000000
DATA ahead<>+48(SB)/8, $0
DATA ahead<>+56(SB)/8, $0x0400000000000000
DATA ahead<>+64(SB)/8, $0
DATA ahead<>+72(SB)/8, $0x0600000000000000
DATA ahead<>+80(SB)/8, $0
DATA ahead<>+88(SB)/8, $0x0600000000000000
DATA ahead<>+96(SB)/8, $0
DATA ahead<>+104(SB)/8, $0x0800000000000000
DATA ahead<>+112(SB)/8, $0
DATA ahead<>+120(SB)/8, $0x0800000000000000
GLOBL ahead<>(SB), RODATA|NOPTR, $128

// 128 bytes that keep, and as many that clear; n bytes before the latter is the mask of the first n of a turn
DATA keep<>+0(SB)/8, $-1
DATA keep<>+8(SB)/8, $-1
DATA keep<>+16(SB)/8, $-1
DATA keep<>+24(SB)/8, $-1
DATA keep<>+32(SB)/8, $-1
DATA keep<>+40(SB)/8, $-1
DATA keep<>+48(SB)/8, $-1
DATA keep<>+56(SB)/8, $-1
DATA keep<>+64(SB)/8, $-1
DATA keep<>+72(SB)/8, $-1
DATA keep<>+80(SB)/8, $-1
DATA keep<>+88(SB)/8, $-1
DATA keep<>+96(SB)/8, $-1
DATA keep<>+104(SB)/8, $-1
DATA keep<>+112(SB)/8, $-1
DATA keep<>+120(SB)/8, $-1
DATA keep<>+128(SB)/8, $0
DATA keep<>+136(SB)/8, $0
DATA keep<>+144(SB)/8, $0
DATA keep<>+152(SB)/8, $0
DATA keep<>+160(SB)/8, $0
DATA keep<>+168(SB)/8, $0
DATA keep<>+176(SB)/8, $0
DATA keep<>+184(SB)/8, $0
DATA keep<>+192(SB)/8, $0
DATA keep<>+200(SB)/8, $0
DATA keep<>+208(SB)/8, $0
DATA keep<>+216(SB)/8, $0
DATA keep<>+224(SB)/8, $0
DATA keep<>+232(SB)/8, $0
DATA keep<>+240(SB)/8, $0
DATA keep<>+248(SB)/8, $0
GLOBL keep<>(SB), RODATA|NOPTR, $256

#define STEPS 192    // offset in vectorKey of the steps
#define STEPSUMS 320 // of the sums of their halves
#define POWERS 576   // of the eighth power
#define LAST 688     // of the first
#define BEHIND 704   // of what is behind it
#define SUMS 880     // of the sums of the eighth power's halves
#define APART 304    // from a power to its sum

#define STREAM 128 // offset in the frame of the tag's key stream, which is behind the last turn's text

// COUNTERS makes the next 8, of which the last byte does not overflow.
#define COUNTERS \
	VMOVDQA Y13, Y0                  \
	VPADDD  ahead<>+0(SB), Y13, Y1   \
	VPADDD  ahead<>+32(SB), Y13, Y2  \
	VPADDD  ahead<>+64(SB), Y13, Y3  \
	VPADDD  ahead<>+96(SB), Y13, Y13

// WRAP is COUNTERS in any case.
#define WRAP \
	VMOVDQA Y13, Y0              \
	VPSHUFB Y12, Y13, Y13        \
	VPADDD  two<>(SB), Y13, Y1   \
	VPADDD  two<>(SB), Y1, Y2    \
	VPADDD  two<>(SB), Y2, Y3    \
	VPADDD  two<>(SB), Y3, Y13   \
	VPSHUFB Y12, Y1, Y1          \
	VPSHUFB Y12, Y2, Y2          \
	VPSHUFB Y12, Y3, Y3          \
	VPSHUFB Y12, Y13, Y13

#define ROUND0 \
	VBROADCASTI128 (AX), Y15 \
	VPXOR Y15, Y0, Y0        \
	VPXOR Y15, Y1, Y1        \
	VPXOR Y15, Y2, Y2        \
	VPXOR Y15, Y3, Y3

#define ROUND(N) \
	VBROADCASTI128 16*N(AX), Y15 \
	VAESENC Y15, Y0, Y0          \
	VAESENC Y15, Y1, Y1          \
	VAESENC Y15, Y2, Y2          \
	VAESENC Y15, Y3, Y3

#define LASTROUND \
	VBROADCASTI128 160(AX), Y15 \
	VAESENCLAST Y15, Y0, Y0     \
	VAESENCLAST Y15, Y1, Y1     \
	VAESENCLAST Y15, Y2, Y2     \
	VAESENCLAST Y15, Y3, Y3

// MUL1 is a product of two blocks and H, whose halves have the sum S; MUL2 adds another one; MUL4 the turn's last one,
// whose blocks are the first and take the hash so far.
#define MUL1(BLOCKS, H, S) \
	VPSHUFB    Y12, BLOCKS, Y14  \
	VPCLMULQDQ $0x00, H, Y14, Y8  \
	VPCLMULQDQ $0x11, H, Y14, Y10 \
	VPSHUFD    $0x4e, Y14, Y15    \
	VPXOR      Y14, Y15, Y15      \
	VPCLMULQDQ $0x00, S, Y15, Y9

#define ADDMUL(H, S) \
	VPCLMULQDQ $0x00, H, Y14, Y15 \
	VPXOR      Y15, Y8, Y8        \
	VPCLMULQDQ $0x11, H, Y14, Y15 \
	VPXOR      Y15, Y10, Y10      \
	VPSHUFD    $0x4e, Y14, Y15    \
	VPXOR      Y14, Y15, Y15      \
	VPCLMULQDQ $0x00, S, Y15, Y15 \
	VPXOR      Y15, Y9, Y9

#define MUL2(BLOCKS, H, S) \
	VPSHUFB Y12, BLOCKS, Y14 \
	ADDMUL(H, S)

#define MUL4(BLOCKS, H, S) \
	VPSHUFB Y12, BLOCKS, Y14 \
	VPXOR   Y11, Y14, Y14    \
	ADDMUL(H, S)             \
	VPXOR   Y8, Y9, Y9       \
	VPXOR   Y10, Y9, Y9

// REDUCELOW folds the low quarter of the product into its middle, REDUCEHIGH that into what remains.
#define REDUCELOW \
	VPCLMULQDQ $0x00, poly<>(SB), Y8, Y14 \
	VPSHUFD    $0x4e, Y8, Y8              \
	VPXOR      Y14, Y9, Y9                \
	VPXOR      Y8, Y9, Y9

#define REDUCEHIGH \
	VPCLMULQDQ $0x00, poly<>(SB), Y9, Y14 \
	VPSHUFD    $0x4e, Y9, Y9              \
	VPXOR      Y14, Y10, Y10              \
	VPXOR      Y9, Y10, Y10

// FOLD adds the two lanes up.
#define FOLD \
	VEXTRACTI128 $1, Y10, X14   \
	VPXOR        X14, X10, X11

// TURN encrypts the counters and hashes Y4 to Y7 with the powers at H, whose sums are at S, which makes the hash of each
// lane (Y10).
#define TURN(H, S) \
	ROUND0                            \
	ROUND(1)                          \
	MUL1(Y7, H+96(AX), S+96(AX))      \
	ROUND(2)                          \
	MUL2(Y6, H+64(AX), S+64(AX))      \
	ROUND(3)                          \
	MUL2(Y5, H+32(AX), S+32(AX))      \
	ROUND(4)                          \
	MUL4(Y4, H(AX), S(AX))            \
	ROUND(5)                          \
	REDUCELOW                         \
	ROUND(6)                          \
	REDUCEHIGH                        \
	ROUND(7)                          \
	ROUND(8)                          \
	ROUND(9)                          \
	LASTROUND

// HASH hashes Y4 to Y7, the last ones, with the powers at R12.
#define HASH \
	MUL1(Y7, 96(R12), APART+96(R12)) \
	MUL2(Y6, 64(R12), APART+64(R12)) \
	MUL2(Y5, 32(R12), APART+32(R12)) \
	MUL4(Y4, (R12), APART(R12))      \
	REDUCELOW                        \
	REDUCEHIGH                       \
	FOLD

#define KEYSTREAM \
	WRAP        \
	ADDB $8, BX \
	ROUND0      \
	ROUND(1)    \
	ROUND(2)    \
	ROUND(3)    \
	ROUND(4)    \
	ROUND(5)    \
	ROUND(6)    \
	ROUND(7)    \
	ROUND(8)    \
	ROUND(9)    \
	LASTROUND

#define XORALL \
	VPXOR Y4, Y0, Y0 \
	VPXOR Y5, Y1, Y1 \
	VPXOR Y6, Y2, Y2 \
	VPXOR Y7, Y3, Y3

// LOAD and STORE are of a whole turn.
#define LOAD(FROM) \
	VMOVDQU (FROM), Y4   \
	VMOVDQU 32(FROM), Y5 \
	VMOVDQU 64(FROM), Y6 \
	VMOVDQU 96(FROM), Y7

#define STORE(A, B, C, D, TO) \
	VMOVDQU A, (TO)   \
	VMOVDQU B, 32(TO) \
	VMOVDQU C, 64(TO) \
	VMOVDQU D, 96(TO)

#define NEXTTURN \
	ADDQ $128, SI \
	ADDQ $128, DI \
	SUBQ $128, CX

// AHEAD asks for source bytes a page ahead, as four_amd64.s does.
#define AHEAD \
	PREFETCHT0 4096(SI) \
	PREFETCHT0 4160(SI)

// ARGUMENTS are those of seal2 and open2.
#define ARGUMENTS \
	MOVQ k+0(FP), AX       \
	MOVQ dst+8(FP), DI     \
	MOVQ src+16(FP), SI    \
	MOVQ n+24(FP), CX      \
	MOVQ aad+32(FP), R8    \
	MOVQ aadLen+40(FP), R9 \
	MOVQ nonce+48(FP), R10 \
	MOVQ tag+56(FP), R11

// BEGIN makes the counters and the tag's key stream.
#define BEGIN \
	VBROADCASTI128 reverse<>(SB), Y12   \
	VMOVQ          (R10), X0            \
	VPINSRD        $2, 8(R10), X0, X0   \
	MOVL           $0x01000000, R12     \
	VPINSRD        $3, R12, X0, X0      \
	VPSHUFB        X12, X0, X1          \
	VINSERTI128    $1, X1, Y1, Y1       \
	VPADDD         first<>(SB), Y1, Y13 \
	VPSHUFB        Y12, Y13, Y13        \
	MOVL           $2, BX               \
	VPXOR          (AX), X0, X0         \
	VAESENC        16(AX), X0, X0       \
	VAESENC        32(AX), X0, X0       \
	VAESENC        48(AX), X0, X0       \
	VAESENC        64(AX), X0, X0       \
	VAESENC        80(AX), X0, X0       \
	VAESENC        96(AX), X0, X0       \
	VAESENC        112(AX), X0, X0      \
	VAESENC        128(AX), X0, X0      \
	VAESENC        144(AX), X0, X0      \
	VAESENCLAST    160(AX), X0, X0      \
	VMOVDQU        X0, STREAM(SP)       \
	VPXOR          X11, X11, X11

// ZERO clears the 128 bytes at TO.
#define ZERO(TO) \
	VPXOR Y4, Y4, Y4 \
	STORE(Y4, Y4, Y4, Y4, TO)

// TAIL copies N bytes from FROM to the stack, with zeros behind them, and points R12 at their powers.
#define TAIL(FROM, N) \
	ZERO(SP)                  \
	MOVQ FROM, R8             \
	MOVQ N, R9                \
	LEAQ 0(SP), R12           \
	CALL copy<>(SB)           \
	LEAQ 15(N), R12           \
	ANDQ $-16, R12            \
	NEGQ R12                  \
	LEAQ BEHIND(AX)(R12*1), R12

// TAILOUT copies CX bytes of the stack to DI, and clears the stack.
#define TAILOUT \
	LEAQ 0(SP), R8  \
	MOVQ CX, R9     \
	MOVQ DI, R12    \
	CALL copy<>(SB) \
	ZERO(SP)

// END hashes the lengths and stores the tag.
#define END \
	MOVQ       n+24(FP), R12        \
	SHLQ       $3, R12              \
	VMOVQ      R12, X4              \
	MOVQ       aadLen+40(FP), R12   \
	SHLQ       $3, R12              \
	VPINSRQ    $1, R12, X4, X4      \
	VPXOR      X11, X4, X4          \
	VMOVDQU    LAST(AX), X15        \
	PRODUCT                         \
	VPSHUFB    X12, X10, X10        \
	VPXOR      STREAM(SP), X10, X10 \
	VMOVDQU    X10, (R11)           \
	VPXOR      X4, X4, X4           \
	VMOVDQU    X4, STREAM(SP)       \
	VZEROALL

// PRODUCT is that of X4 and X15.
#define PRODUCT \
	VPCLMULQDQ $0x00, X15, X4, X8  \
	VPCLMULQDQ $0x11, X15, X4, X10 \
	VPCLMULQDQ $0x01, X15, X4, X9  \
	VPCLMULQDQ $0x10, X15, X4, X14 \
	VPXOR      X14, X9, X9         \
	REDUCELOW                      \
	REDUCEHIGH

// copy copies R9 bytes from R8 to R12, and changes these, DX and X14.
TEXT copy<>(SB), NOSPLIT, $0
copyBlock:
	CMPQ    R9, $16
	JB      copy8
	VMOVDQU (R8), X14
	VMOVDQU X14, (R12)
	ADDQ    $16, R8
	ADDQ    $16, R12
	SUBQ    $16, R9
	JMP     copyBlock

copy8:
	TESTB $8, R9
	JZ    copy4
	MOVQ  (R8), DX
	MOVQ  DX, (R12)
	ADDQ  $8, R8
	ADDQ  $8, R12

copy4:
	TESTB $4, R9
	JZ    copy2
	MOVL  (R8), DX
	MOVL  DX, (R12)
	ADDQ  $4, R8
	ADDQ  $4, R12

copy2:
	TESTB $2, R9
	JZ    copy1
	MOVW  (R8), DX
	MOVW  DX, (R12)
	ADDQ  $2, R8
	ADDQ  $2, R12

copy1:
	TESTB $1, R9
	JZ    copied
	MOVB  (R8), DX
	MOVB  DX, (R12)

copied:
	RET

// func seal2(k *vectorKey, dst, src *byte, n int, aad *byte, aadLen int, nonce, tag *byte)
TEXT ·seal2(SB), NOSPLIT, $144-64
	ARGUMENTS
	BEGIN
	TESTQ R9, R9
	JZ    sealText
	MOVQ  R9, R13
	TAIL(R8, R13)
	LOAD(SP)
	HASH

sealText:
	CMPQ CX, $128
	JB   sealTail

	KEYSTREAM
	JMP  sealStore

sealTurn:
	ADDB $8, BX
	JCS  sealWrap
	COUNTERS

sealHash:
	TURN(STEPS, STEPSUMS)
	VMOVDQA Y10, Y11

sealStore:
	AHEAD
	VPXOR (SI), Y0, Y4
	VPXOR 32(SI), Y1, Y5
	VPXOR 64(SI), Y2, Y6
	VPXOR 96(SI), Y3, Y7
	STORE(Y4, Y5, Y6, Y7, DI)
	NEXTTURN
	CMPQ  CX, $128
	JAE   sealTurn

	LEAQ POWERS(AX), R12
	HASH

sealTail:
	TESTQ CX, CX
	JZ    sealEnd
	TAIL(SI, CX)
	LOAD(SP)
	KEYSTREAM
	XORALL
	STORE(Y0, Y1, Y2, Y3, SP)
	LEAQ  keep<>+128(SB), R8
	SUBQ  CX, R8
	VPAND (R8), Y0, Y4
	VPAND 32(R8), Y1, Y5
	VPAND 64(R8), Y2, Y6
	VPAND 96(R8), Y3, Y7
	HASH
	TAILOUT

sealEnd:
	END
	RET

sealWrap:
	WRAP
	JMP sealHash

// func open2(k *vectorKey, dst, src *byte, n int, aad *byte, aadLen int, nonce, tag *byte)
TEXT ·open2(SB), NOSPLIT, $144-64
	ARGUMENTS
	BEGIN
	TESTQ R9, R9
	JZ    openText
	MOVQ  R9, R13
	TAIL(R8, R13)
	LOAD(SP)
	HASH

openText:
	CMPQ CX, $128
	JB   openTail

openTurn:
	AHEAD
	LOAD(SI)
	ADDB $8, BX
	JCS  openWrap
	COUNTERS

openHash:
	CMPQ CX, $256
	JB   openLast
	TURN(STEPS, STEPSUMS)
	VMOVDQA Y10, Y11
	XORALL
	STORE(Y0, Y1, Y2, Y3, DI)
	NEXTTURN
	JMP  openTurn

openLast:
	TURN(POWERS, SUMS)
	FOLD
	XORALL
	STORE(Y0, Y1, Y2, Y3, DI)
	NEXTTURN

openTail:
	TESTQ CX, CX
	JZ    openEnd
	TAIL(SI, CX)
	LOAD(SP)
	KEYSTREAM
	XORALL
	STORE(Y0, Y1, Y2, Y3, SP)
	HASH
	TAILOUT

openEnd:
	END
	RET

openWrap:
	WRAP
	JMP openHash

// func mul(product, a, b *byte)
TEXT ·mul(SB), NOSPLIT, $0-24
	MOVQ product+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), AX
	VMOVDQU (SI), X4
	VMOVDQU (AX), X15
	PRODUCT
	VMOVDQU X10, (DI)
	VZEROALL
	RET

// NEXTKEY makes round key N of the one before, in X0, with AESKEYGENASSIST's constant.
#define NEXTKEY(N, CONSTANT) \
	VAESKEYGENASSIST $CONSTANT, X0, X1 \
	VPSHUFD          $0xff, X1, X1     \
	VPSLLDQ          $4, X0, X2        \
	VPXOR            X2, X0, X0        \
	VPSLLDQ          $8, X0, X2        \
	VPXOR            X2, X0, X0        \
	VPXOR            X1, X0, X0        \
	VMOVDQU          X0, 16*N(DI)

// func expand(rounds, secret *byte)
TEXT ·expand(SB), NOSPLIT, $0-16
	MOVQ    rounds+0(FP), DI
	MOVQ    secret+8(FP), SI
	VMOVDQU (SI), X0
	VMOVDQU X0, (DI)
	NEXTKEY(1, 0x01)
	NEXTKEY(2, 0x02)
	NEXTKEY(3, 0x04)
	NEXTKEY(4, 0x08)
	NEXTKEY(5, 0x10)
	NEXTKEY(6, 0x20)
	NEXTKEY(7, 0x40)
	NEXTKEY(8, 0x80)
	NEXTKEY(9, 0x1b)
	NEXTKEY(10, 0x36)
	VZEROALL
	RET

// func leaf7() (ecx uint32)
TEXT ·leaf7(SB), NOSPLIT, $0-4
	MOVL $7, AX
	XORL CX, CX
	CPUID
	MOVL CX, ecx+0(FP)
	RET
