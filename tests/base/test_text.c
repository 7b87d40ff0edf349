/* Text of others: what is shown of it. The ranges are tried at both ends, and beside them. */
#include "../test.h"
#include "base/text.h"

#include "base/util.h"

static void encode(char out[static 5], uint32_t c)
{
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    memset(out, 0, 5);
    for (size_t i = n; i-- > 1; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(c | (n == 1 ? 0 : n == 2 ? 0xc0 : n == 3 ? 0xe0U : 0xf0U));
}

TEST(code_points)
{
    static const struct {
        uint32_t first, last;
        bool plain;
    } rows[] = {
        {0x01, 0x1f, false},         {0x20, 0x7e, true},        {0x7f, 0x9f, false},
        {0xa0, 0xac, true},          {0xad, 0xad, false},       {0xae, 0x34e, true},
        {0x3b1, 0x3c9, true},        {0x61c, 0x61c, false},     {0x115f, 0x1160, false},
        {0x180e, 0x180e, false},     {0x2010, 0x2027, true},    {0x200b, 0x200f, false},
        {0x2028, 0x202e, false},     {0x2030, 0x205e, true},    {0x2060, 0x206f, false},
        {0x3041, 0x3096, true},      {0x3164, 0x3164, false},   {0x4e00, 0x9fff, true},
        {0xd800, 0xdfff, false},     {0xe000, 0xf8ff, false},   {0xf900, 0xf900, true},
        {0xfdd0, 0xfdef, false},     {0xfe00, 0xfe0f, false},   {0xfeff, 0xfeff, false},
        {0xfff9, 0xfffb, false},     {0xfffc, 0xfffd, true},    {0xfffe, 0xffff, false},
        {0x1f600, 0x1f64f, true},    {0x1fffe, 0x1ffff, false}, {0x20000, 0x20010, true},
        {0xe0000, 0xe0fff, false},   {0xf0000, 0xf0000, false}, {0x10ffff, 0x10ffff, false},
        {0x110000, 0x1fffff, false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        for (uint32_t c = rows[i].first; c <= rows[i].last; c++) {
            char text[16] = "a", at[5];
            encode(at, c);
            strcat(text, at);
            strcat(text, "b");
            if (text_plain(text) != rows[i].plain)
                fail_msg("U+%04X", c);
            text_show(text);
            assert_true(text_plain(text));
            assert_int_equal(strchr(text, '?') != NULL, !rows[i].plain || c == '?');
            assert_true(text[0] == 'a' && text[strlen(text) - 1] == 'b');
        }
    }
}

TEST(bytes)
{
    static const struct {
        const char *text, *shown;
    } rows[] = {
        {"", ""},
        {"caf\xc3\xa9", "caf\xc3\xa9"},
        {"\x1b[2J", "?[2J"},
        {"caf\xe9", "caf?"},
        {"\xc0\xaf", "??"},      /* overlong / */
        {"\xe0\x80\x80", "???"}, /* overlong NUL */
        {"\xf8\x88\x80\x80\x80", "?????"},
        {"\x80x", "?x"},
        {"\xe2\x82", "??"}, /* cut */
        {"\xe2\x82x", "??x"},
        {"ab\xe2\x80\xae"
         "c",
         "ab???c"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char text[16];
        snprintf(text, sizeof(text), "%s", rows[i].text);
        assert_int_equal(text_plain(text), strcmp(rows[i].text, rows[i].shown) == 0);
        text_show(text);
        assert_string_equal(text, rows[i].shown);
    }
}

TEST(quotes)
{
    char q[TEXT_QUOTE];
    assert_string_equal(text_quote(q, "\x1b[2J x\xff"), "?[2J?x?");
    assert_string_equal(text_quote(q, "0123456789012345678901234567890123"),
                        "01234567890123456789012345678901...");
}
