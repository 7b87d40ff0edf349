/* See text.h. Makes no system call. */
#include "base/text.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

/* Code points that are invisible or control how others are shown: Unicode 15's Cc, Cf, Zl, Zp, Co,
 * Cs, noncharacters and default ignorable code points (variation selectors, fillers), and no
 * others. is_seen() adds the last two of each plane, which are noncharacters as well. */
static const struct {
    uint32_t first, last;
} unseen[] = {
    {0x0000, 0x001f},   {0x007f, 0x009f},    {0x00ad, 0x00ad},   {0x034f, 0x034f},
    {0x0600, 0x0605},   {0x061c, 0x061c},    {0x06dd, 0x06dd},   {0x070f, 0x070f},
    {0x0890, 0x0891},   {0x08e2, 0x08e2},    {0x115f, 0x1160},   {0x17b4, 0x17b5},
    {0x180b, 0x180f},   {0x200b, 0x200f},    {0x2028, 0x202e},   {0x2060, 0x206f},
    {0x3164, 0x3164},   {0xd800, 0xf8ff},    {0xfdd0, 0xfdef},   {0xfe00, 0xfe0f},
    {0xfeff, 0xfeff},   {0xffa0, 0xffa0},    {0xfff0, 0xfffb},   {0x110bd, 0x110bd},
    {0x110cd, 0x110cd}, {0x13430, 0x1343f},  {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a},
    {0xe0000, 0xe0fff}, {0xf0000, 0x10ffff},
};

static bool is_seen(uint32_t c)
{
    for (size_t i = 0; i < ARRAY_SIZE(unseen); i++) {
        if (c >= unseen[i].first && c <= unseen[i].last)
            return false;
    }
    return (c & 0xfffe) != 0xfffe;
}

/* Reads one code point and moves *s behind it. UINT32_MAX: no UTF-8, or not the shortest form. */
static uint32_t next_point(const unsigned char **s)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *p = *s;
    unsigned n = *p < 0x80 ? 1 : *p < 0xc0 ? 0 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : *p < 0xf8 ? 4 : 0;
    uint32_t c = n == 1 ? *p : n ? *p & (0x7fU >> n) : UINT32_MAX;
    for (unsigned i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) /* so does the end */
            return UINT32_MAX;
        c = c << 6 | (p[i] & 0x3fU);
    }
    *s = p + n;
    return n && c >= least[n] && c <= 0x10ffff ? c : UINT32_MAX;
}

bool text_plain(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    while (*s) {
        uint32_t c = next_point(&s);
        if (c == UINT32_MAX || !is_seen(c))
            return false;
    }
    return true;
}

void text_show(char *text)
{
    unsigned char *s = (unsigned char *)text;
    while (*s) {
        const unsigned char *end = s;
        uint32_t c = next_point(&end);
        if (c != UINT32_MAX && is_seen(c)) {
            s += end - s;
            continue;
        }
        end = c == UINT32_MAX ? s + 1 : end;
        while (s < end)
            *s++ = '?';
    }
}

void text_printable(char *text)
{
    for (; *text; text++)
        *text = *text < ' ' || *text > '~' ? '?' : *text;
}

const char *text_quote(char buf[static TEXT_QUOTE], const char *text)
{
    size_t len = strlen(text), n = min_u64(len, 32);
    for (size_t i = 0; i < n; i++)
        buf[i] = text[i] > ' ' && text[i] <= '~' ? text[i] : '?';
    snprintf(buf + n, TEXT_QUOTE - n, "%s", n < len ? "..." : "");
    return buf;
}
