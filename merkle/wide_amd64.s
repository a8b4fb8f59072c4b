//go:build !purego

#include "textflag.h"

// BLAKE3's compression of 16 inputs at once with AVX-512F: one lane of every
// register is one input. Z0 to Z15 are the state, Z16 to Z31 the message.

DATA iv<>+0x00(SB)/4, $0x6A09E667
DATA iv<>+0x04(SB)/4, $0xBB67AE85
DATA iv<>+0x08(SB)/4, $0x3C6EF372
DATA iv<>+0x0c(SB)/4, $0xA54FF53A
DATA iv<>+0x10(SB)/4, $0x510E527F
DATA iv<>+0x14(SB)/4, $0x9B05688C
DATA iv<>+0x18(SB)/4, $0x1F83D9AB
DATA iv<>+0x1c(SB)/4, $0x5BE0CD19
GLOBL iv<>(SB), RODATA|NOPTR, $32

DATA lane<>+0x00(SB)/8, $0x0000000100000000
DATA lane<>+0x08(SB)/8, $0x0000000300000002
DATA lane<>+0x10(SB)/8, $0x0000000500000004
DATA lane<>+0x18(SB)/8, $0x0000000700000006
DATA lane<>+0x20(SB)/8, $0x0000000900000008
DATA lane<>+0x28(SB)/8, $0x0000000b0000000a
DATA lane<>+0x30(SB)/8, $0x0000000d0000000c
DATA lane<>+0x38(SB)/8, $0x0000000f0000000e
GLOBL lane<>(SB), RODATA|NOPTR, $64

// HALF is half of the function G on four columns or diagonals: a += b + m;
// d = (d ^ a) >>> r; c += d; b = (b ^ c) >>> s.
#define HALF(a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3, m0, m1, m2, m3, r, s) \
	VPADDD m0, a0, a0 \
	VPADDD m1, a1, a1 \
	VPADDD m2, a2, a2 \
	VPADDD m3, a3, a3 \
	VPADDD b0, a0, a0 \
	VPADDD b1, a1, a1 \
	VPADDD b2, a2, a2 \
	VPADDD b3, a3, a3 \
	VPXORD a0, d0, d0 \
	VPXORD a1, d1, d1 \
	VPXORD a2, d2, d2 \
	VPXORD a3, d3, d3 \
	VPRORD r, d0, d0  \
	VPRORD r, d1, d1  \
	VPRORD r, d2, d2  \
	VPRORD r, d3, d3  \
	VPADDD d0, c0, c0 \
	VPADDD d1, c1, c1 \
	VPADDD d2, c2, c2 \
	VPADDD d3, c3, c3 \
	VPXORD c0, b0, b0 \
	VPXORD c1, b1, b1 \
	VPXORD c2, b2, b2 \
	VPXORD c3, b3, b3 \
	VPRORD s, b0, b0  \
	VPRORD s, b1, b1  \
	VPRORD s, b2, b2  \
	VPRORD s, b3, b3

// ROUND mixes the message words in the order given.
#define ROUND(m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15) \
	HALF(Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15, m0, m2, m4, m6, $16, $12)   \
	HALF(Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15, m1, m3, m5, m7, $8, $7)     \
	HALF(Z0, Z1, Z2, Z3, Z5, Z6, Z7, Z4, Z10, Z11, Z8, Z9, Z15, Z12, Z13, Z14, m8, m10, m12, m14, $16, $12) \
	HALF(Z0, Z1, Z2, Z3, Z5, Z6, Z7, Z4, Z10, Z11, Z8, Z9, Z15, Z12, Z13, Z14, m9, m11, m13, m15, $8, $7)

// LOAD reads 32 bytes at offset o of four rows p, and of the four rows q.
#define LOAD(o, p, q, z0, y0, z1, y1, z2, y2, z3, y3) \
	VMOVDQU      o(p), y0                  \
	VMOVDQU      o(p)(R8*1), y1            \
	VMOVDQU      o(p)(R8*2), y2            \
	VMOVDQU      o(p)(R9*1), y3            \
	VINSERTI64X4 $1, o(q), z0, z0          \
	VINSERTI64X4 $1, o(q)(R8*1), z1, z1    \
	VINSERTI64X4 $1, o(q)(R8*2), z2, z2    \
	VINSERTI64X4 $1, o(q)(R9*1), z3, z3

// TURN transposes four times four words in each quarter of z0 to z3, through
// t0 to t3.
#define TURN(z0, z1, z2, z3, t0, t1, t2, t3) \
	VPUNPCKLDQ  z1, z0, t0 \
	VPUNPCKHDQ  z1, z0, t1 \
	VPUNPCKLDQ  z3, z2, t2 \
	VPUNPCKHDQ  z3, z2, t3 \
	VPUNPCKLQDQ t2, t0, z0 \
	VPUNPCKHQDQ t2, t0, z1 \
	VPUNPCKLQDQ t3, t1, z2 \
	VPUNPCKHQDQ t3, t1, z3

// WORDS reads 8 words of each of 16 rows, so that m0 to m7 have one word each.
#define WORDS(o, m0, m1, m2, m3, m4, m5, m6, m7) \
	LOAD(o, SI, R10, Z8, Y8, Z9, Y9, Z10, Y10, Z11, Y11)      \
	LOAD(o, R11, R12, Z12, Y12, Z13, Y13, Z14, Y14, Z15, Y15) \
	TURN(Z8, Z9, Z10, Z11, m0, m1, m2, m3)                    \
	TURN(Z12, Z13, Z14, Z15, m4, m5, m6, m7)                  \
	VSHUFI32X4 $0x88, Z12, Z8, m0  \
	VSHUFI32X4 $0x88, Z13, Z9, m1  \
	VSHUFI32X4 $0x88, Z14, Z10, m2 \
	VSHUFI32X4 $0x88, Z15, Z11, m3 \
	VSHUFI32X4 $0xdd, Z12, Z8, m4  \
	VSHUFI32X4 $0xdd, Z13, Z9, m5  \
	VSHUFI32X4 $0xdd, Z14, Z10, m6 \
	VSHUFI32X4 $0xdd, Z15, Z11, m7

// ROWS writes rows n, n+4, n+8 and n+12: lo has words 0 to 3 of them, hi the others.
#define ROWS(n, lo, hi) \
	VEXTRACTI32X4 $0, lo, (n*32+0)(DI)   \
	VEXTRACTI32X4 $0, hi, (n*32+16)(DI)  \
	VEXTRACTI32X4 $1, lo, (n*32+128)(DI) \
	VEXTRACTI32X4 $1, hi, (n*32+144)(DI) \
	VEXTRACTI32X4 $2, lo, (n*32+256)(DI) \
	VEXTRACTI32X4 $2, hi, (n*32+272)(DI) \
	VEXTRACTI32X4 $3, lo, (n*32+384)(DI) \
	VEXTRACTI32X4 $3, hi, (n*32+400)(DI)

// func hash16(out *[16]cv, in *byte, stride, blocks int, counter uint64, step, flags, first, last uint32)
TEXT ·hash16(SB), NOSPLIT, $128-56
	MOVQ out+0(FP), DI
	MOVQ in+8(FP), SI
	MOVQ stride+16(FP), R8
	MOVQ blocks+24(FP), CX
	LEAQ (R8)(R8*2), R9
	LEAQ (SI)(R8*4), R10
	LEAQ (SI)(R8*8), R11
	LEAQ (R10)(R8*8), R12

	// The counters: counter + lane × step.
	MOVQ         counter+32(FP), AX
	MOVL         step+40(FP), DX
	VPBROADCASTD DX, Z0
	VPMULLD      lane<>(SB), Z0, Z0
	VPBROADCASTD AX, Z1
	VPADDD       Z1, Z0, Z0
	VMOVDQU32    Z0, low-64(SP)
	SHRQ         $32, AX
	VPBROADCASTD AX, Z1
	VMOVDQU32    Z1, high-128(SP)

	MOVL flags+44(FP), R13
	MOVL first+48(FP), DX
	MOVL last+52(FP), BX
	ORL  R13, DX

	VPBROADCASTD iv<>+0x00(SB), Z0
	VPBROADCASTD iv<>+0x04(SB), Z1
	VPBROADCASTD iv<>+0x08(SB), Z2
	VPBROADCASTD iv<>+0x0c(SB), Z3
	VPBROADCASTD iv<>+0x10(SB), Z4
	VPBROADCASTD iv<>+0x14(SB), Z5
	VPBROADCASTD iv<>+0x18(SB), Z6
	VPBROADCASTD iv<>+0x1c(SB), Z7

block:
	WORDS(0, Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23)
	WORDS(32, Z24, Z25, Z26, Z27, Z28, Z29, Z30, Z31)

	CMPQ CX, $1
	JNE  more
	ORL  BX, DX

more:
	MOVL         $64, AX
	VPBROADCASTD iv<>+0x00(SB), Z8
	VPBROADCASTD iv<>+0x04(SB), Z9
	VPBROADCASTD iv<>+0x08(SB), Z10
	VPBROADCASTD iv<>+0x0c(SB), Z11
	VMOVDQU32    low-64(SP), Z12
	VMOVDQU32    high-128(SP), Z13
	VPBROADCASTD AX, Z14
	VPBROADCASTD DX, Z15

	ROUND(Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23, Z24, Z25, Z26, Z27, Z28, Z29, Z30, Z31)
	ROUND(Z18, Z22, Z19, Z26, Z23, Z16, Z20, Z29, Z17, Z27, Z28, Z21, Z25, Z30, Z31, Z24)
	ROUND(Z19, Z20, Z26, Z28, Z29, Z18, Z23, Z30, Z22, Z21, Z25, Z16, Z27, Z31, Z24, Z17)
	ROUND(Z26, Z23, Z28, Z25, Z30, Z19, Z29, Z31, Z20, Z16, Z27, Z18, Z21, Z24, Z17, Z22)
	ROUND(Z28, Z29, Z25, Z27, Z31, Z26, Z30, Z24, Z23, Z18, Z21, Z19, Z16, Z17, Z22, Z20)
	ROUND(Z25, Z30, Z27, Z21, Z24, Z28, Z31, Z17, Z29, Z19, Z16, Z26, Z18, Z22, Z20, Z23)
	ROUND(Z27, Z31, Z21, Z16, Z17, Z25, Z24, Z22, Z30, Z26, Z18, Z28, Z19, Z20, Z23, Z29)

	VPXORD Z8, Z0, Z0
	VPXORD Z9, Z1, Z1
	VPXORD Z10, Z2, Z2
	VPXORD Z11, Z3, Z3
	VPXORD Z12, Z4, Z4
	VPXORD Z13, Z5, Z5
	VPXORD Z14, Z6, Z6
	VPXORD Z15, Z7, Z7

	ADDQ $64, SI
	ADDQ $64, R10
	ADDQ $64, R11
	ADDQ $64, R12
	MOVL R13, DX
	DECQ CX
	JNZ  block

	TURN(Z0, Z1, Z2, Z3, Z8, Z9, Z10, Z11)
	TURN(Z4, Z5, Z6, Z7, Z12, Z13, Z14, Z15)
	ROWS(0, Z0, Z4)
	ROWS(1, Z1, Z5)
	ROWS(2, Z2, Z6)
	ROWS(3, Z3, Z7)
	VZEROUPPER
	RET

// The same with AVX2, 8 inputs at once. There are only 16 registers, so that the
// message is on the stack, and state word 8 too: Y8 is free for what a rotation
// needs.

#define M0 0(R13)
#define M1 32(R13)
#define M2 64(R13)
#define M3 96(R13)
#define M4 128(R13)
#define M5 160(R13)
#define M6 192(R13)
#define M7 224(R13)
#define M8 256(R13)
#define M9 288(R13)
#define M10 320(R13)
#define M11 352(R13)
#define M12 384(R13)
#define M13 416(R13)
#define M14 448(R13)
#define M15 480(R13)
#define V8 512(R13)

DATA turn16<>+0x00(SB)/8, $0x0504070601000302
DATA turn16<>+0x08(SB)/8, $0x0d0c0f0e09080b0a
DATA turn16<>+0x10(SB)/8, $0x0504070601000302
DATA turn16<>+0x18(SB)/8, $0x0d0c0f0e09080b0a
GLOBL turn16<>(SB), RODATA|NOPTR, $32

DATA turn8<>+0x00(SB)/8, $0x0407060500030201
DATA turn8<>+0x08(SB)/8, $0x0c0f0e0d080b0a09
DATA turn8<>+0x10(SB)/8, $0x0407060500030201
DATA turn8<>+0x18(SB)/8, $0x0c0f0e0d080b0a09
GLOBL turn8<>(SB), RODATA|NOPTR, $32

// TURNRIGHT rotates b by r bits; l is 32 - r.
#define TURNRIGHT(b, r, l) \
	VPSRLD r, b, Y8 \
	VPSLLD l, b, b  \
	VPOR   Y8, b, b

// HALF8 is HALF, where the first of the third row is V8 and d is rotated by the
// bytes that turn says.
#define HALF8(a0, a1, a2, a3, b0, b1, b2, b3, c1, c2, c3, d0, d1, d2, d3, m0, m1, m2, m3, turn, r, l) \
	VPADDD  m0, a0, a0             \
	VPADDD  m1, a1, a1             \
	VPADDD  m2, a2, a2             \
	VPADDD  m3, a3, a3             \
	VPADDD  b0, a0, a0             \
	VPADDD  b1, a1, a1             \
	VPADDD  b2, a2, a2             \
	VPADDD  b3, a3, a3             \
	VPXOR   a0, d0, d0             \
	VPXOR   a1, d1, d1             \
	VPXOR   a2, d2, d2             \
	VPXOR   a3, d3, d3             \
	VPSHUFB turn<>(SB), d0, d0     \
	VPSHUFB turn<>(SB), d1, d1     \
	VPSHUFB turn<>(SB), d2, d2     \
	VPSHUFB turn<>(SB), d3, d3     \
	VPADDD  V8, d0, Y8             \
	VPADDD  d1, c1, c1             \
	VPADDD  d2, c2, c2             \
	VPADDD  d3, c3, c3             \
	VMOVDQA Y8, V8                 \
	VPXOR   Y8, b0, b0             \
	VPXOR   c1, b1, b1             \
	VPXOR   c2, b2, b2             \
	VPXOR   c3, b3, b3             \
	TURNRIGHT(b0, r, l)            \
	TURNRIGHT(b1, r, l)            \
	TURNRIGHT(b2, r, l)            \
	TURNRIGHT(b3, r, l)

// ROUND8 mixes the message words in the order given.
#define ROUND8(m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15) \
	HALF8(Y0, Y1, Y2, Y3, Y4, Y5, Y6, Y7, Y9, Y10, Y11, Y12, Y13, Y14, Y15, m0, m2, m4, m6, turn16, $12, $20) \
	HALF8(Y0, Y1, Y2, Y3, Y4, Y5, Y6, Y7, Y9, Y10, Y11, Y12, Y13, Y14, Y15, m1, m3, m5, m7, turn8, $7, $25)   \
	HALF8(Y2, Y3, Y0, Y1, Y7, Y4, Y5, Y6, Y9, Y10, Y11, Y13, Y14, Y15, Y12, m12, m14, m8, m10, turn16, $12, $20) \
	HALF8(Y2, Y3, Y0, Y1, Y7, Y4, Y5, Y6, Y9, Y10, Y11, Y13, Y14, Y15, Y12, m13, m15, m9, m11, turn8, $7, $25)

// WORDS8 reads 4 words of each of 8 rows into m0 to m3.
#define WORDS8(o, m0, m1, m2, m3) \
	VMOVDQU     o(SI), X8                \
	VMOVDQU     o(SI)(R8*1), X9          \
	VMOVDQU     o(SI)(R8*2), X10         \
	VMOVDQU     o(SI)(R9*1), X11         \
	VINSERTI128 $1, o(R10), Y8, Y8       \
	VINSERTI128 $1, o(R10)(R8*1), Y9, Y9 \
	VINSERTI128 $1, o(R10)(R8*2), Y10, Y10 \
	VINSERTI128 $1, o(R10)(R9*1), Y11, Y11 \
	TURN(Y8, Y9, Y10, Y11, Y12, Y13, Y14, Y15) \
	VMOVDQA     Y8, m0                   \
	VMOVDQA     Y9, m1                   \
	VMOVDQA     Y10, m2                  \
	VMOVDQA     Y11, m3

// ROWS8 writes rows n and n+4, as ROWS does.
#define ROWS8(n, xlo, lo, xhi, hi) \
	VMOVDQU      xlo, (n*32+0)(DI)      \
	VMOVDQU      xhi, (n*32+16)(DI)     \
	VEXTRACTI128 $1, lo, (n*32+128)(DI) \
	VEXTRACTI128 $1, hi, (n*32+144)(DI)

// func hash8(out *[8]cv, in *byte, stride, blocks int, counter uint64, step, flags, first, last uint32)
TEXT ·hash8(SB), NOSPLIT, $640-56
	MOVQ out+0(FP), DI
	MOVQ in+8(FP), SI
	MOVQ stride+16(FP), R8
	MOVQ blocks+24(FP), CX
	LEAQ (R8)(R8*2), R9
	LEAQ (SI)(R8*4), R10

	// 608 bytes of the frame, from a multiple of 32 on.
	LEAQ frame-640(SP), R13
	ADDQ $31, R13
	ANDQ $~31, R13

	// The counters: counter + lane × step.
	MOVQ         counter+32(FP), AX
	MOVL         step+40(FP), DX
	VMOVD        DX, X0
	VPBROADCASTD X0, Y0
	VPMULLD      lane<>(SB), Y0, Y0
	VMOVD        AX, X1
	VPBROADCASTD X1, Y1
	VPADDD       Y1, Y0, Y0
	VMOVDQA      Y0, 544(R13)
	SHRQ         $32, AX
	VMOVD        AX, X1
	VPBROADCASTD X1, Y1
	VMOVDQA      Y1, 576(R13)

	MOVL flags+44(FP), R11
	MOVL first+48(FP), DX
	MOVL last+52(FP), BX
	ORL  R11, DX

	VPBROADCASTD iv<>+0x00(SB), Y0
	VPBROADCASTD iv<>+0x04(SB), Y1
	VPBROADCASTD iv<>+0x08(SB), Y2
	VPBROADCASTD iv<>+0x0c(SB), Y3
	VPBROADCASTD iv<>+0x10(SB), Y4
	VPBROADCASTD iv<>+0x14(SB), Y5
	VPBROADCASTD iv<>+0x18(SB), Y6
	VPBROADCASTD iv<>+0x1c(SB), Y7

block:
	WORDS8(0, M0, M1, M2, M3)
	WORDS8(16, M4, M5, M6, M7)
	WORDS8(32, M8, M9, M10, M11)
	WORDS8(48, M12, M13, M14, M15)

	CMPQ CX, $1
	JNE  more
	ORL  BX, DX

more:
	MOVL         $64, AX
	VPBROADCASTD iv<>+0x00(SB), Y8
	VMOVDQA      Y8, V8
	VPBROADCASTD iv<>+0x04(SB), Y9
	VPBROADCASTD iv<>+0x08(SB), Y10
	VPBROADCASTD iv<>+0x0c(SB), Y11
	VMOVDQA      544(R13), Y12
	VMOVDQA      576(R13), Y13
	VMOVD        AX, X14
	VPBROADCASTD X14, Y14
	VMOVD        DX, X15
	VPBROADCASTD X15, Y15

	ROUND8(M0, M1, M2, M3, M4, M5, M6, M7, M8, M9, M10, M11, M12, M13, M14, M15)
	ROUND8(M2, M6, M3, M10, M7, M0, M4, M13, M1, M11, M12, M5, M9, M14, M15, M8)
	ROUND8(M3, M4, M10, M12, M13, M2, M7, M14, M6, M5, M9, M0, M11, M15, M8, M1)
	ROUND8(M10, M7, M12, M9, M14, M3, M13, M15, M4, M0, M11, M2, M5, M8, M1, M6)
	ROUND8(M12, M13, M9, M11, M15, M10, M14, M8, M7, M2, M5, M3, M0, M1, M6, M4)
	ROUND8(M9, M14, M11, M5, M8, M12, M15, M1, M13, M3, M0, M10, M2, M6, M4, M7)
	ROUND8(M11, M15, M5, M0, M1, M9, M8, M6, M14, M10, M2, M12, M3, M4, M7, M13)

	VPXOR V8, Y0, Y0
	VPXOR Y9, Y1, Y1
	VPXOR Y10, Y2, Y2
	VPXOR Y11, Y3, Y3
	VPXOR Y12, Y4, Y4
	VPXOR Y13, Y5, Y5
	VPXOR Y14, Y6, Y6
	VPXOR Y15, Y7, Y7

	ADDQ $64, SI
	ADDQ $64, R10
	MOVL R11, DX
	DECQ CX
	JNZ  block

	TURN(Y0, Y1, Y2, Y3, Y8, Y9, Y10, Y11)
	TURN(Y4, Y5, Y6, Y7, Y12, Y13, Y14, Y15)
	ROWS8(0, X0, Y0, X4, Y4)
	ROWS8(1, X1, Y1, X5, Y5)
	ROWS8(2, X2, Y2, X6, Y6)
	ROWS8(3, X3, Y3, X7, Y7)
	VZEROUPPER
	RET
