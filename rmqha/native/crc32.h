/* The CRC32 of zlib, for the bodies of records. It uses the carry-less multiplication of x86-64 where available, and
 * otherwise, as for short bodies, tables with 16 bytes at a time. Call make_crc_tables() once before use.
 */
#ifndef RMQHA_CRC32_H
#define RMQHA_CRC32_H

#include <stdint.h>

static uint32_t crc_table[16][256];

static inline uint32_t crc_of_4(const uint8_t *p, uint32_t crc, int level)
{
    return crc_table[level + 3][p[0] ^ (crc & 255)] ^ crc_table[level + 2][p[1] ^ (crc >> 8 & 255)]
         ^ crc_table[level + 1][p[2] ^ (crc >> 16 & 255)] ^ crc_table[level][p[3] ^ crc >> 24];
}

static inline uint32_t crc_of_16(const uint8_t *p, uint32_t crc)
{
    return crc_of_4(p, crc, 12) ^ crc_of_4(p + 4, 0, 8) ^ crc_of_4(p + 8, 0, 4) ^ crc_of_4(p + 12, 0, 0);
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <emmintrin.h>
#include <wmmintrin.h>

#define CRC_FOLD_MIN 64

static int crc_folds; /* true if the processor has the instruction */

static inline void look_for_folding(void)
{
    unsigned int eax, ebx, ecx = 0, edx;
    crc_folds = __get_cpuid(1, &eax, &ebx, &ecx, &edx) && ecx & bit_PCLMUL;
}

/* Fold 16 bytes into `next`. `powers` are the remainders of x to the distance in bits, plus and minus 32. */
__attribute__((target("pclmul")))
static inline __m128i crc_carried(__m128i bytes, __m128i powers, __m128i next)
{
    return _mm_xor_si128(next, _mm_xor_si128(_mm_clmulepi64_si128(bytes, powers, 0x00),
                                             _mm_clmulepi64_si128(bytes, powers, 0x11)));
}

/* Return the CRC of *length bytes (at least CRC_FOLD_MIN), except for the last ones, fewer than 16. Set *p and *length
 * to those. */
__attribute__((target("pclmul")))
static uint32_t crc_by_folding(const uint8_t **p, int64_t *length, uint32_t crc)
{
    /* The remainders of x to the powers 544, 480, 160 and 96 modulo the polynomial, with their bits reversed. */
    const __m128i by_64 = _mm_set_epi64x(0x1C6E41596, 0x154442BD4), by_16 = _mm_set_epi64x(0x0CCAA009E, 0x1751997D0);
    const __m128i *at = (const __m128i *)*p;
    int64_t left = *length - 64;
    __m128i a = _mm_xor_si128(_mm_loadu_si128(at), _mm_cvtsi32_si128((int)crc)), b = _mm_loadu_si128(at + 1),
            c = _mm_loadu_si128(at + 2), d = _mm_loadu_si128(at + 3);
    for (at += 4; left >= 64; left -= 64, at += 4) {
        a = crc_carried(a, by_64, _mm_loadu_si128(at));
        b = crc_carried(b, by_64, _mm_loadu_si128(at + 1));
        c = crc_carried(c, by_64, _mm_loadu_si128(at + 2));
        d = crc_carried(d, by_64, _mm_loadu_si128(at + 3));
    }
    d = crc_carried(crc_carried(crc_carried(a, by_16, b), by_16, c), by_16, d);
    for (; left >= 16; left -= 16, at++)
        d = crc_carried(d, by_16, _mm_loadu_si128(at));
    uint8_t rest[16]; /* bytes whose CRC is that of everything before `at` */
    _mm_storeu_si128((__m128i *)rest, d);
    *p = (const uint8_t *)at, *length = left;
    return crc_of_16(rest, 0);
}
#endif

static void make_crc_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++)
            value = value & 1 ? 0xEDB88320u ^ value >> 1 : value >> 1;
        crc_table[0][byte] = value;
    }
    for (int level = 1; level < 16; level++)
        for (int byte = 0; byte < 256; byte++)
            crc_table[level][byte] = crc_table[0][crc_table[level - 1][byte] & 255] ^ crc_table[level - 1][byte] >> 8;
#ifdef CRC_FOLD_MIN
    look_for_folding();
#endif
}

static uint32_t crc32_of(const uint8_t *p, int64_t length)
{
    uint32_t crc = 0xFFFFFFFFu;
#ifdef CRC_FOLD_MIN
    if (crc_folds && length >= CRC_FOLD_MIN)
        crc = crc_by_folding(&p, &length, crc);
#endif
    for (; length >= 16; length -= 16, p += 16)
        crc = crc_of_16(p, crc);
    for (; length >= 4; length -= 4, p += 4)
        crc = crc_of_4(p, crc, 0);
    for (; length > 0; length--, p++)
        crc = crc_table[0][(crc ^ *p) & 255] ^ crc >> 8;
    return ~crc;
}

#endif
