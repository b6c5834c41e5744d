#include "textflag.h"

// AES-128-GCM on vectors of four blocks (VAES, VPCLMULQDQ, AVX-512), 16 blocks a turn.
//
// A block is hashed as POLYVAL does it (RFC 8452, appendix A): its bytes reversed, times powers of the key's H, which
// is multiplied by x once before. A product is then reduced by two multiplications with poly. What is hashed in a turn
// is the turn's own ciphertext when opening and the turn's before when sealing, so that AES and the hash never wait for
// each other.
//
// Vectors of 512 bits have two ports, one of which alone does AES, the other one multiplications and shuffles, so each
// instruction of a turn counts:
//
//   - the four lanes of the hash are added up in the last turn only (FOLD). Until then each lane is a hash of its own,
//     of every fourth block: it is multiplied by H to the 16, 12, 8 and 4 (STEPS). The last turn's powers, 16 to 1 from
//     lane to lane (POWERS), put the lanes where they belong;
//   - counters are kept as they are encrypted, and added to in their last byte, unless that overflows (WRAP);
//   - three values are added at a time (VPTERNLOGQ $0x96).
//
//	Z0-Z3    counters, then the key stream          Z12  mask that reverses the bytes of each block
//	Z4-Z7    ciphertext to be hashed                Z13  next four counters
//	Z8-Z10   product: low, middle, high halves      Z15  poly
//	Z11      hash so far                            Z16-Z26  round keys
//	X29      the tag's key stream                   Z14, Z27, Z28, Z30, Z31  at hand
//
//	AX *vectorKey   DI dst   SI src   CX bytes left   R8 additional data   R9 its bytes   R10 nonce   R11 tag
//	R12 powers to hash with   R13 all ones   BX last byte of the first of the next counters
//	R8, R9, R12 are at hand where they are not these
//
// Every byte of the source is read once: what Open lets out is what it has hashed, whoever else writes there. Registers
// are cleared at the end, since a signal handler's frame may keep them.

DATA reverse<>+0(SB)/8, $0x08090a0b0c0d0e0f
DATA reverse<>+8(SB)/8, $0x0001020304050607
GLOBL reverse<>(SB), RODATA|NOPTR, $16

DATA poly<>+0(SB)/8, $0xc200000000000000
GLOBL poly<>(SB), RODATA|NOPTR, $8

// The first four data blocks have the counters 2 to 5; 1 is the tag's. They are reversed.
DATA first<>+0(SB)/8, $1
DATA first<>+8(SB)/8, $0
DATA first<>+16(SB)/8, $2
DATA first<>+24(SB)/8, $0
DATA first<>+32(SB)/8, $3
DATA first<>+40(SB)/8, $0
DATA first<>+48(SB)/8, $4
DATA first<>+56(SB)/8, $0
GLOBL first<>(SB), RODATA|NOPTR, $64

// 4 in each lane, for reversed counters
DATA four<>+0(SB)/8, $4
DATA four<>+8(SB)/8, $0
DATA four<>+16(SB)/8, $4
DATA four<>+24(SB)/8, $0
DATA four<>+32(SB)/8, $4
DATA four<>+40(SB)/8, $0
DATA four<>+48(SB)/8, $4
DATA four<>+56(SB)/8, $0
GLOBL four<>(SB), RODATA|NOPTR, $64

// 4, 8, 12 and 16 in the last byte of each lane
DATA ahead<>+0(SB)/8, $0
DATA ahead<>+8(SB)/8, $0x0400000000000000
DATA ahead<>+16(SB)/8, $0
DATA ahead<>+24(SB)/8, $0x0400000000000000
DATA ahead<>+32(SB)/8, $0
DATA ahead<>+40(SB)/8, $0x0400000000000000
DATA ahead<>+48(SB)/8, $0
DATA ahead<>+56(SB)/8, $0x0400000000000000
DATA ahead<>+64(SB)/8, $0
DATA ahead<>+72(SB)/8, $0x0800000000000000
DATA ahead<>+80(SB)/8, $0
DATA ahead<>+88(SB)/8, $0x0800000000000000
DATA ahead<>+96(SB)/8, $0
DATA ahead<>+104(SB)/8, $0x0800000000000000
DATA ahead<>+112(SB)/8, $0
DATA ahead<>+120(SB)/8, $0x0800000000000000
DATA ahead<>+128(SB)/8, $0
DATA ahead<>+136(SB)/8, $0x0c00000000000000
DATA ahead<>+144(SB)/8, $0
DATA ahead<>+152(SB)/8, $0x0c00000000000000
DATA ahead<>+160(SB)/8, $0
DATA ahead<>+168(SB)/8, $0x0c00000000000000
DATA ahead<>+176(SB)/8, $0
DATA ahead<>+184(SB)/8, $0x0c00000000000000
DATA ahead<>+192(SB)/8, $0
DATA ahead<>+200(SB)/8, $0x1000000000000000
DATA ahead<>+208(SB)/8, $0
DATA ahead<>+216(SB)/8, $0x1000000000000000
DATA ahead<>+224(SB)/8, $0
DATA ahead<>+232(SB)/8, $0x1000000000000000
DATA ahead<>+240(SB)/8, $0
DATA ahead<>+248(SB)/8, $0x1000000000000000
GLOBL ahead<>(SB), RODATA|NOPTR, $256

#define STEPS 192  // offset in vectorKey of the steps
#define POWERS 448 // of the 16th power
#define LAST 688   // of the first
#define BEHIND 704 // of what is behind it

// COUNTERS makes the next 16, of which the last byte does not overflow.
#define COUNTERS \
	VMOVDQA64 Z13, Z0               \
	VPADDD    ahead<>+0(SB), Z13, Z1   \
	VPADDD    ahead<>+64(SB), Z13, Z2  \
	VPADDD    ahead<>+128(SB), Z13, Z3 \
	VPADDD    ahead<>+192(SB), Z13, Z13

// WRAP is COUNTERS in any case.
#define WRAP \
	VMOVDQU64 four<>(SB), Z14 \
	VMOVDQA64 Z13, Z0         \
	VPSHUFB   Z12, Z13, Z13   \
	VPADDD    Z14, Z13, Z1    \
	VPADDD    Z14, Z1, Z2     \
	VPADDD    Z14, Z2, Z3     \
	VPADDD    Z14, Z3, Z13    \
	VPSHUFB   Z12, Z1, Z1     \
	VPSHUFB   Z12, Z2, Z2     \
	VPSHUFB   Z12, Z3, Z3     \
	VPSHUFB   Z12, Z13, Z13

#define ROUND0 \
	VPXORQ Z16, Z0, Z0 \
	VPXORQ Z16, Z1, Z1 \
	VPXORQ Z16, Z2, Z2 \
	VPXORQ Z16, Z3, Z3

#define ROUND(K) \
	VAESENC K, Z0, Z0 \
	VAESENC K, Z1, Z1 \
	VAESENC K, Z2, Z2 \
	VAESENC K, Z3, Z3

#define LASTROUND \
	VAESENCLAST Z26, Z0, Z0 \
	VAESENCLAST Z26, Z1, Z1 \
	VAESENCLAST Z26, Z2, Z2 \
	VAESENCLAST Z26, Z3, Z3

// MUL is a product with four blocks.
#define MUL(BLOCKS, H) \
	VPCLMULQDQ $0x00, H, BLOCKS, Z8  \
	VPCLMULQDQ $0x11, H, BLOCKS, Z10 \
	VPCLMULQDQ $0x01, H, BLOCKS, Z9  \
	VPCLMULQDQ $0x10, H, BLOCKS, Z27 \
	VPXORQ     Z27, Z9, Z9

// MUL1 to MUL4 are the product with 16, four at a time. Between them Z27 has to be added to the middle, and between the
// second and the third Z28 to the low halves and Z31 to the high ones.
#define MUL1(BLOCKS, H) \
	VPSHUFB    Z12, BLOCKS, Z30   \
	VPCLMULQDQ $0x00, H, Z30, Z8  \
	VPCLMULQDQ $0x11, H, Z30, Z10 \
	VPCLMULQDQ $0x01, H, Z30, Z9  \
	VPCLMULQDQ $0x10, H, Z30, Z27

#define MUL2(BLOCKS, H) \
	VPSHUFB    Z12, BLOCKS, Z30   \
	VPCLMULQDQ $0x01, H, Z30, Z14 \
	VPTERNLOGQ $0x96, Z27, Z14, Z9 \
	VPCLMULQDQ $0x10, H, Z30, Z27 \
	VPCLMULQDQ $0x00, H, Z30, Z28 \
	VPCLMULQDQ $0x11, H, Z30, Z31

#define MUL3(BLOCKS, H) \
	VPSHUFB    Z12, BLOCKS, Z30    \
	VPCLMULQDQ $0x01, H, Z30, Z14  \
	VPTERNLOGQ $0x96, Z27, Z14, Z9 \
	VPCLMULQDQ $0x10, H, Z30, Z27  \
	VPCLMULQDQ $0x00, H, Z30, Z14  \
	VPTERNLOGQ $0x96, Z28, Z14, Z8 \
	VPCLMULQDQ $0x11, H, Z30, Z14  \
	VPTERNLOGQ $0x96, Z31, Z14, Z10

#define MUL4(BLOCKS, H) \
	VPSHUFB    Z12, BLOCKS, Z30    \
	VPXORQ     Z11, Z30, Z30       \
	VPCLMULQDQ $0x00, H, Z30, Z28  \
	VPXORQ     Z28, Z8, Z8         \
	VPCLMULQDQ $0x01, H, Z30, Z14  \
	VPTERNLOGQ $0x96, Z27, Z14, Z9 \
	VPCLMULQDQ $0x10, H, Z30, Z27  \
	VPXORQ     Z27, Z9, Z9         \
	VPCLMULQDQ $0x11, H, Z30, Z31  \
	VPXORQ     Z31, Z10, Z10

// REDUCELOW folds the low quarter of the product into its middle, REDUCEHIGH that into what remains.
#define REDUCELOW \
	VPCLMULQDQ $0x00, Z15, Z8, Z27 \
	VPSHUFD    $0x4e, Z8, Z8       \
	VPTERNLOGQ $0x96, Z27, Z8, Z9

#define REDUCEHIGH \
	VPCLMULQDQ $0x00, Z15, Z9, Z27 \
	VPSHUFD    $0x4e, Z9, Z9       \
	VPTERNLOGQ $0x96, Z27, Z9, Z10

// FOLD adds the four lanes up.
#define FOLD \
	VEXTRACTI64X4 $1, Z10, Y27   \
	VPXORQ        Y27, Y10, Y10  \
	VEXTRACTI32X4 $1, Y10, X27   \
	VPXORQ        X27, X10, X11

// TURN encrypts the counters and hashes Z4 to Z7 with the powers at H, which makes the hash of each lane (Z10).
#define TURN(H) \
	ROUND0                \
	ROUND(Z17)            \
	MUL1(Z7, H+192(AX))   \
	ROUND(Z18)            \
	MUL2(Z6, H+128(AX))   \
	ROUND(Z19)            \
	MUL3(Z5, H+64(AX))    \
	ROUND(Z20)            \
	MUL4(Z4, H(AX))       \
	ROUND(Z21)            \
	REDUCELOW             \
	ROUND(Z22)            \
	REDUCEHIGH            \
	ROUND(Z23)            \
	ROUND(Z24)            \
	ROUND(Z25)            \
	LASTROUND

// HASH hashes Z4 to Z7, the last ones, with the powers at R12.
#define HASH \
	MUL1(Z7, 192(R12)) \
	MUL2(Z6, 128(R12)) \
	MUL3(Z5, 64(R12))  \
	MUL4(Z4, (R12))    \
	REDUCELOW          \
	REDUCEHIGH         \
	FOLD

// HASH4 hashes Z4 alone, reversed.
#define HASH4 \
	VPXORQ Z11, Z4, Z4 \
	MUL(Z4, (R12))     \
	REDUCELOW          \
	REDUCEHIGH         \
	FOLD

#define KEYSTREAM \
	WRAP        \
	ADDB $16, BX \
	ROUND0      \
	ROUND(Z17)  \
	ROUND(Z18)  \
	ROUND(Z19)  \
	ROUND(Z20)  \
	ROUND(Z21)  \
	ROUND(Z22)  \
	ROUND(Z23)  \
	ROUND(Z24)  \
	ROUND(Z25)  \
	LASTROUND

// KEYSTREAM4 is KEYSTREAM for the last four blocks or fewer.
#define KEYSTREAM4 \
	VPXORQ      Z16, Z13, Z0 \
	VAESENC     Z17, Z0, Z0  \
	VAESENC     Z18, Z0, Z0  \
	VAESENC     Z19, Z0, Z0  \
	VAESENC     Z20, Z0, Z0  \
	VAESENC     Z21, Z0, Z0  \
	VAESENC     Z22, Z0, Z0  \
	VAESENC     Z23, Z0, Z0  \
	VAESENC     Z24, Z0, Z0  \
	VAESENC     Z25, Z0, Z0  \
	VAESENCLAST Z26, Z0, Z0

#define XORALL \
	VPXORQ Z4, Z0, Z0 \
	VPXORQ Z5, Z1, Z1 \
	VPXORQ Z6, Z2, Z2 \
	VPXORQ Z7, Z3, Z3

// LOAD and STORE are of a whole turn.
#define LOAD \
	VMOVDQU64 (SI), Z4    \
	VMOVDQU64 64(SI), Z5  \
	VMOVDQU64 128(SI), Z6 \
	VMOVDQU64 192(SI), Z7

#define STORE(A, B, C, D) \
	VMOVDQU64 A, (DI)    \
	VMOVDQU64 B, 64(DI)  \
	VMOVDQU64 C, 128(DI) \
	VMOVDQU64 D, 192(DI) \
	ADDQ      $256, SI   \
	ADDQ      $256, DI   \
	SUBQ      $256, CX

// AHEAD asks for source bytes a page ahead: payloads come from memory that no cache holds, the processor's own
// prefetching ends with each page, and what lies behind a payload is likely to be the next one. Where a turn takes 14
// ns, 1 KiB would be too late.
#define AHEAD \
	PREFETCHT0 4096(SI) \
	PREFETCHT0 4160(SI) \
	PREFETCHT0 4224(SI) \
	PREFETCHT0 4288(SI)

// ARGUMENTS are those of seal4 and open4.
#define ARGUMENTS \
	MOVQ k+0(FP), AX       \
	MOVQ dst+8(FP), DI     \
	MOVQ src+16(FP), SI    \
	MOVQ n+24(FP), CX      \
	MOVQ aad+32(FP), R8    \
	MOVQ aadLen+40(FP), R9 \
	MOVQ nonce+48(FP), R10 \
	MOVQ tag+56(FP), R11

// BEGIN loads the key and makes the counters and the tag's key stream.
#define BEGIN \
	VBROADCASTI32X4 (AX), Z16              \
	VBROADCASTI32X4 16(AX), Z17            \
	VBROADCASTI32X4 32(AX), Z18            \
	VBROADCASTI32X4 48(AX), Z19            \
	VBROADCASTI32X4 64(AX), Z20            \
	VBROADCASTI32X4 80(AX), Z21            \
	VBROADCASTI32X4 96(AX), Z22            \
	VBROADCASTI32X4 112(AX), Z23           \
	VBROADCASTI32X4 128(AX), Z24           \
	VBROADCASTI32X4 144(AX), Z25           \
	VBROADCASTI32X4 160(AX), Z26           \
	VBROADCASTI32X4 reverse<>(SB), Z12     \
	VPBROADCASTQ    poly<>(SB), Z15        \
	VMOVQ           (R10), X0              \
	VPINSRD         $2, 8(R10), X0, X0     \
	MOVL            $0x01000000, R12       \
	VPINSRD         $3, R12, X0, X0        \
	VPSHUFB         X12, X0, X1            \
	VSHUFI32X4      $0, Z1, Z1, Z1         \
	VPADDD          first<>(SB), Z1, Z13   \
	VPSHUFB         Z12, Z13, Z13          \
	MOVL            $2, BX                 \
	VPXORQ          X16, X0, X29           \
	VAESENC         X17, X29, X29          \
	VAESENC         X18, X29, X29          \
	VAESENC         X19, X29, X29          \
	VAESENC         X20, X29, X29          \
	VAESENC         X21, X29, X29          \
	VAESENC         X22, X29, X29          \
	VAESENC         X23, X29, X29          \
	VAESENC         X24, X29, X29          \
	VAESENC         X25, X29, X29          \
	VAESENCLAST     X26, X29, X29          \
	VPXOR           X11, X11, X11          \
	MOVQ            $-1, R13

// ADDITIONAL hashes the additional data, of 1 to 64 bytes.
#define ADDITIONAL \
	BZHIQ           R9, R13, R12           \
	KMOVQ           R12, K1                \
	VMOVDQU8.Z      (R8), K1, Z4           \
	VPSHUFB         Z12, Z4, Z4            \
	LEAQ            15(R9), R12            \
	ANDQ            $-16, R12              \
	NEGQ            R12                    \
	LEAQ            BEHIND(AX)(R12*1), R12 \
	HASH4

// END hashes the lengths and stores the tag.
#define END \
	MOVQ    n+24(FP), R12       \
	SHLQ    $3, R12             \
	VMOVQ   R12, X30            \
	MOVQ    aadLen+40(FP), R12  \
	SHLQ    $3, R12             \
	VPINSRQ $1, R12, X30, X30   \
	VPXORQ  X30, X11, X4  \
	LEAQ    LAST(AX), R12 \
	VMOVDQU64 (R12), X27    \
	VPCLMULQDQ $0x00, X27, X4, X8  \
	VPCLMULQDQ $0x11, X27, X4, X10 \
	VPCLMULQDQ $0x01, X27, X4, X9  \
	VPCLMULQDQ $0x10, X27, X4, X28 \
	VPXORQ  X28, X9, X9   \
	REDUCELOW             \
	REDUCEHIGH            \
	VPSHUFB X12, X10, X10 \
	VPXORQ  X29, X10, X10 \
	VMOVDQU X10, (R11)    \
	VPXORQ  Z16, Z16, Z16 \
	VPXORQ  Z17, Z17, Z17 \
	VPXORQ  Z18, Z18, Z18 \
	VPXORQ  Z19, Z19, Z19 \
	VPXORQ  Z20, Z20, Z20 \
	VPXORQ  Z21, Z21, Z21 \
	VPXORQ  Z22, Z22, Z22 \
	VPXORQ  Z23, Z23, Z23 \
	VPXORQ  Z24, Z24, Z24 \
	VPXORQ  Z25, Z25, Z25 \
	VPXORQ  Z26, Z26, Z26 \
	VPXORQ  Z27, Z27, Z27 \
	VPXORQ  Z28, Z28, Z28 \
	VPXORQ  Z29, Z29, Z29 \
	VPXORQ  Z30, Z30, Z30 \
	VPXORQ  Z31, Z31, Z31 \
	VZEROALL

// TAILPOWERS points R12 at the powers for the CX bytes that are left.
#define TAILPOWERS \
	LEAQ 15(CX), R12          \
	ANDQ $-16, R12            \
	NEGQ R12                  \
	LEAQ BEHIND(AX)(R12*1), R12

// MASK sets K to the bytes of vector V that the CX bytes which are left reach, for the vectors behind the first.
#define MASK(V, K) \
	XORL    R9, R9           \
	LEAQ    -64*V(CX), R8    \
	TESTQ   R8, R8           \
	CMOVQLT R9, R8           \
	BZHIQ   R8, R13, R8      \
	KMOVQ   R8, K

#define TAILMASKS \
	BZHIQ CX, R13, R8 \
	KMOVQ R8, K1      \
	MASK(1, K2)       \
	MASK(2, K3)       \
	MASK(3, K4)

// TAILLOAD loads them.
#define TAILLOAD \
	VMOVDQU8.Z (SI), K1, Z4    \
	VMOVDQU8.Z 64(SI), K2, Z5  \
	VMOVDQU8.Z 128(SI), K3, Z6 \
	VMOVDQU8.Z 192(SI), K4, Z7

#define TAILSTORE(A, B, C, D) \
	VMOVDQU8 A, K1, (DI)    \
	VMOVDQU8 B, K2, 64(DI)  \
	VMOVDQU8 C, K3, 128(DI) \
	VMOVDQU8 D, K4, 192(DI)

// func seal4(k *vectorKey, dst, src *byte, n int, aad *byte, aadLen int, nonce, tag *byte)
TEXT ·seal4(SB), NOSPLIT, $0-64
	ARGUMENTS
	BEGIN
	TESTQ R9, R9
	JZ    sealText
	ADDITIONAL

sealText:
	CMPQ CX, $256
	JB   sealTail

	KEYSTREAM
	JMP  sealStore

sealTurn:
	ADDB $16, BX
	JCS  sealWrap
	COUNTERS

sealHash:
	TURN(STEPS)
	VMOVDQA64 Z10, Z11

sealStore:
	AHEAD
	VPXORQ (SI), Z0, Z4
	VPXORQ 64(SI), Z1, Z5
	VPXORQ 128(SI), Z2, Z6
	VPXORQ 192(SI), Z3, Z7
	STORE(Z4, Z5, Z6, Z7)
	CMPQ   CX, $256
	JAE    sealTurn

	LEAQ POWERS(AX), R12
	HASH

sealTail:
	TESTQ CX, CX
	JZ    sealEnd
	TAILPOWERS
	CMPQ  CX, $64
	JA    sealTail16

	BZHIQ      CX, R13, R8
	KMOVQ      R8, K1
	KEYSTREAM4
	VMOVDQU8.Z (SI), K1, Z4
	VPXORQ     Z0, Z4, Z4
	VMOVDQU8   Z4, K1, (DI)
	VMOVDQU8.Z Z4, K1, Z4
	VPSHUFB    Z12, Z4, Z4
	HASH4
	JMP        sealEnd

sealTail16:
	TAILMASKS
	KEYSTREAM
	TAILLOAD
	VPXORQ     Z0, Z4, Z4
	VPXORQ     Z1, Z5, Z5
	VPXORQ     Z2, Z6, Z6
	VPXORQ     Z3, Z7, Z7
	TAILSTORE(Z4, Z5, Z6, Z7)
	VMOVDQU8.Z Z4, K1, Z4
	VMOVDQU8.Z Z5, K2, Z5
	VMOVDQU8.Z Z6, K3, Z6
	VMOVDQU8.Z Z7, K4, Z7
	HASH

sealEnd:
	END
	RET

sealWrap:
	WRAP
	JMP sealHash

// func open4(k *vectorKey, dst, src *byte, n int, aad *byte, aadLen int, nonce, tag *byte)
TEXT ·open4(SB), NOSPLIT, $0-64
	ARGUMENTS
	BEGIN
	TESTQ R9, R9
	JZ    openText
	ADDITIONAL

openText:
	CMPQ CX, $256
	JB   openTail

openTurn:
	AHEAD
	LOAD
	ADDB $16, BX
	JCS  openWrap
	COUNTERS

openHash:
	CMPQ CX, $512
	JB   openLast
	TURN(STEPS)
	VMOVDQA64 Z10, Z11
	XORALL
	STORE(Z0, Z1, Z2, Z3)
	JMP  openTurn

openLast:
	TURN(POWERS)
	FOLD
	XORALL
	STORE(Z0, Z1, Z2, Z3)

openTail:
	TESTQ CX, CX
	JZ    openEnd
	TAILPOWERS
	CMPQ  CX, $64
	JA    openTail16

	BZHIQ      CX, R13, R8
	KMOVQ      R8, K1
	KEYSTREAM4
	VMOVDQU8.Z (SI), K1, Z4
	VPXORQ     Z0, Z4, Z0
	VMOVDQU8   Z0, K1, (DI)
	VPSHUFB    Z12, Z4, Z4
	HASH4
	JMP        openEnd

openTail16:
	TAILMASKS
	KEYSTREAM
	TAILLOAD
	XORALL
	TAILSTORE(Z0, Z1, Z2, Z3)
	HASH

openEnd:
	END
	RET

openWrap:
	WRAP
	JMP openHash
