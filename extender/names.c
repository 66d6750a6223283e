/* Node names in bodies and answers, without an object for each: what extender/namewords.py and extender/wire.py do
   with numpy and bytes. Optional; extender/native_names.py calls it. Names are those of one fleet, each with its quotes,
   one behind the other in `blob`, from offsets[row] to offsets[row + 1]; an emptied row has no bytes at all. */

#include <stdint.h>
#include <string.h>

const int64_t tangram_names_layout = 3; /* native_names.LAYOUT */

enum { KEYS = 256 };

typedef struct {
    const char *blob;
    const int64_t *offsets;
    int64_t rows;
    int32_t *places; /* row by place, -1 where there is none */
    int32_t *next;   /* row by row: what followed it in the list before, as lists keep their order and only rotate */
    int64_t mask;    /* places less one; places are a power of two, at least twice the rows */
} names;

static uint64_t mixed(const char *name, int64_t length) {
    const uint64_t multiplier = 0x9E3779B97F4A7C15u;
    uint64_t hash = (uint64_t)length;
    while (length >= 8) {
        uint64_t word;
        memcpy(&word, name, 8);
        hash = (hash ^ word) * multiplier;
        hash ^= hash >> 29;
        name += 8, length -= 8;
    }
    uint64_t rest = 0;
    memcpy(&rest, name, (size_t)length);
    hash = (hash ^ rest) * multiplier;
    return hash ^ (hash >> 32);
}

/* Put every row into its place. */
void tangram_index(names *n) {
    for (int64_t place = 0; place <= n->mask; place++) n->places[place] = -1;
    for (int64_t row = 0; row < n->rows; row++) {
        int64_t length = n->offsets[row + 1] - n->offsets[row];
        n->next[row] = row + 1 < n->rows ? (int32_t)(row + 1) : 0;
        if (length == 0) continue;
        int64_t place = (int64_t)(mixed(n->blob + n->offsets[row], length) & (uint64_t)n->mask);
        while (n->places[place] >= 0) place = (place + 1) & n->mask;
        n->places[place] = (int32_t)row;
    }
}

static int64_t row_of(const names *n, const char *name, int64_t length) {
    int64_t place = (int64_t)(mixed(name, length) & (uint64_t)n->mask);
    for (; n->places[place] >= 0; place = (place + 1) & n->mask) {
        int64_t row = n->places[place], start = n->offsets[row];
        if (n->offsets[row + 1] - start == length && memcmp(n->blob + start, name, (size_t)length) == 0) return row;
    }
    return -1;
}

/* The row of the name at the beginning of a text of so many bytes, and how long the name is; -1 where it has none. */
static int64_t row_at(const names *n, const char *text, int64_t length, int64_t guess, int64_t *name_length) {
    int64_t start = n->offsets[guess], expected = n->offsets[guess + 1] - start;
    *name_length = expected;
    if (expected > 0 && expected <= length && memcmp(n->blob + start, text, (size_t)expected) == 0) return guess;
    const char *end = length > 1 && text[0] == '"' ? memchr(text + 1, '"', (size_t)(length - 1)) : 0;
    if (!end) return -1;
    *name_length = end + 1 - text;
    return row_of(n, text, *name_length);
}

/* Find the rows of a JSON list of names. Returns how many there are, -1 where the list is not one of known names, each
   once, written without blanks and escapes. `seen` has a zero for every row, and has one again afterwards. */
int64_t tangram_find(const names *n, const char *list, int64_t length, int64_t *rows, uint8_t *seen) {
    int64_t count = 0, at = 1, is_plain = n->rows > 0 && length >= 4 && list[0] == '[' && list[length - 1] == ']';
    while (is_plain) {
        int64_t name_length, guess = count ? n->next[rows[count - 1]] : 0;
        int64_t row = row_at(n, list + at, length - 1 - at, guess, &name_length);
        is_plain = row >= 0 && !seen[row];
        if (!is_plain) break;
        if (count) n->next[rows[count - 1]] = (int32_t)row;
        seen[row] = 1, rows[count++] = row;
        at += name_length;
        if (at == length - 1) break;
        is_plain = list[at++] == ',' && at < length - 1;
    }
    for (int64_t each = 0; each < count; each++) seen[rows[each]] = 0;
    return is_plain ? count : -1;
}

/* Copy a short text, and return where it ends: names and endings are a few words long, a call costs more than they do. */
static inline char *put(char *to, const char *text, int64_t length) {
    if (length < 8) {
        for (int64_t at = 0; at < length; at++) to[at] = text[at];
        return to + length;
    }
    for (int64_t at = 0; at + 8 <= length; at += 8) memcpy(to + at, text + at, 8);
    memcpy(to + length - 8, text + length - 8, 8); /* the rest, and some of it once more */
    return to + length;
}

/* Write `before` + name + `after`[key] + "," for every row, key by key, in the rows' order within a key. `ends` gets
   where each key's part ends; `out` has room for as many of the longest. */
void tangram_join(const names *n, const int64_t *rows, const uint8_t *keys, int64_t count, const char *before,
                     int64_t before_length, const char *const *after, const int64_t *after_length, char *out,
                     int64_t *ends) {
    int64_t at[KEYS], total = 0;
    memset(ends, 0, KEYS * sizeof *ends);
    for (int64_t each = 0; each < count; each++)
        ends[keys[each]] += before_length + n->offsets[rows[each] + 1] - n->offsets[rows[each]] + after_length[keys[each]] + 1;
    for (int key = 0; key < KEYS; key++) at[key] = total, total += ends[key], ends[key] = total;
    for (int64_t each = 0; each < count; each++) {
        int key = keys[each];
        int64_t start = n->offsets[rows[each]], length = n->offsets[rows[each] + 1] - start;
        char *to = put(out + at[key], before, before_length);
        to = put(to, n->blob + start, length);
        to = put(to, after[key], after_length[key]);
        *to = ',';
        at[key] = to + 1 - out;
    }
}
