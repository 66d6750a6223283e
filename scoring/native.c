/* The lasting and the passing part of an evaluation, in C: what scoring/standing.py does with numpy, to the last bit.

   Optional: without it, numpy does the work. Every operation has the type and the order that numpy gives it, so the
   compiler must neither contract nor reorder (-ffp-contract=off, no -ffast-math), and expf and log1pf must be those of
   the C library that numpy uses. scoring/native_standing.py lays out the structs below; the two must agree. */

#include <math.h>
#include <stdint.h>
#include <string.h>

/* A second version of a function for processors with wider registers, chosen when the helper is loaded. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define WIDER __attribute__((target_clones("avx2", "default")))
#else
#define WIDER
#endif

const int64_t tangram_layout = 5; /* native_library.LAYOUT */

enum { WHOLE_MILLI = 1000, STEPS = 8, MOST_WIDTH = 1024 };
enum { FORESIGHT, PACKING, PREFERENCE, SPREAD, SUFFICIENCY, TOPOLOGY, LOAD, SCARCITY };
enum { UNREPORTED = 2, STALE = 3, CONFLICTED = 4, FRESH = 5, EMPTY = 0 };
enum { SUSPECT = 2, UNRESOLVABLE = 1, UNSCHEDULABLE = 2, FIT = 3, NO_REASON = 255 };

/* A column of devices: slot-major, `stride` bytes from one slot of a node to the next. */
typedef struct {
    const char *data;
    int64_t stride;
} column;

#define AT(type, col, slot, row) (((const type *)((col).data + (slot) * (col).stride))[row])

typedef struct {
    int64_t width;
    column kind, device_state, mode, capacity_mib, capacity_milli, booked_mib, booked_milli, foreign_mib, numa, link;
    const uint8_t *node_state;
    const int64_t *cpu_capacity, *cpu_booked;
} fleet;

/* What load is worked out from. */
typedef struct {
    int64_t width, nodes;
    column load, settling_milli, capacity_milli, foreign_mib, capacity_mib;
} load_columns;

typedef struct {
    int64_t count, memory_mib, compute_milli, cpu_milli; /* an amount that is left out is -1 */
    int64_t is_whole;
    const uint8_t *kind_matches, *mode_matches, *takes_all;
    const float *preference, *sufficiency; /* by kind, the last entry for absent devices */
    int64_t kinds;
    const uint8_t *reasons; /* of the steps, then NO_REPORT, NODE_CONFLICTED, UNKNOWN_NODE */
    const int64_t *scorers; /* in the order in which they are added up */
    const float *weights;
    int64_t scorers_count, has_scarcity;
    float load_weight, scarcity_weight; /* 0 where the policy does not name them */
} ask;

typedef struct {
    int64_t known, levels, knows_demand;
    const int64_t *cpu_levels;
    const float *unusable; /* (known + 1, levels + 1, 1001) */
    int64_t several_count;
    const int64_t *several; /* device counts */
    const float *several_weights; /* (several_count, known + 1, levels + 1) */
    const float *worth; /* (known + 1, 1001) */
    float cpu_per_device, cpu_noise, cpu_least, scale;
    float fragmentation, cpu_shortage, worth_weight, kinds_weight, step_milli, range_milli;
    int64_t knows_prospect;
    const float *scarce; /* (known + 1) */
    int64_t slots_count;
    const int64_t *slot_counts, *slot_cpu;
    const float *slot_price;
    const uint8_t *slot_kinds; /* (slots_count, known + 1) */
} outlook;

typedef struct {
    uint8_t *code, *reason, *fits;
    float *value;
    int16_t *rest, *left;
    int64_t nodes;
} standing;

/* Amounts are below 2^31 and factors below 2^31, so that quotients fit in 63 bits: cutting the fraction off and going
   one down where that went up is floor() without a call. */
static inline int32_t times_over(int32_t amount, int64_t factor, int32_t whole) {
    if (whole <= 0) return 0;
    if (whole == factor) return amount; /* exact either way, and this one needs no division */
    double quotient = (double)amount * (double)factor / (double)whole;
    int64_t cut = (int64_t)quotient;
    cut -= (double)cut > quotient;
    return cut > INT32_MAX ? INT32_MAX : cut < INT32_MIN ? INT32_MIN : (int32_t)cut;
}

/* To the nearest integer, halves to even, as rintf() does it: a number so large has no room for a fraction. */
static inline float to_integer(float number) {
    const float large = 12582912.0f;
    return fabsf(number) < 4194304.0f ? (number + large) - large : number;
}

static inline int16_t remainder_milli(int32_t mib, int32_t milli, int32_t capacity_mib, int32_t capacity_milli) {
    int32_t of_memory = times_over(mib, WHOLE_MILLI, capacity_mib);
    int32_t of_compute = times_over(milli, WHOLE_MILLI, capacity_milli);
    int32_t least = of_memory < of_compute ? of_memory : of_compute;
    return (int16_t)(least < 0 ? 0 : least > WHOLE_MILLI ? WHOLE_MILLI : least);
}

static int32_t minus(int32_t a, int32_t b) { return (int32_t)((uint32_t)a - (uint32_t)b); }
static int32_t plus(int32_t a, int32_t b) { return (int32_t)((uint32_t)a + (uint32_t)b); }

static inline float value_of(float cost, float step, float range) {
    float stepped = to_integer(cost / step) * step;
    float value = 0.5f - stepped / (2.0f * range);
    value = value > 0.0f ? value : 0.0f;
    return value < 1.0f ? value : 1.0f;
}

static float logaddexp(float x, float y) {
    if (x == y) return x + 0.693147180559945309417232121458176568f;
    float difference = x - y;
    if (difference > 0) return x + log1pf(expf(-difference));
    if (difference <= 0) return y + log1pf(expf(difference));
    return difference;
}

static float shortage(float gpu, float cpu, const outlook *o) {
    float devices = gpu / 1000.0f;
    float mean = o->cpu_per_device * devices - cpu;
    float scale = sqrtf(o->cpu_noise * devices) * o->scale + 1.0f;
    float lacking = scale * logaddexp(0.0f, mean / scale);
    return lacking / o->cpu_least * 1000.0f;
}

static int64_t level_of(const outlook *o, int64_t cpu) {
    int64_t low = 0, high = o->levels;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (o->cpu_levels[middle] <= cpu) low = middle + 1;
        else high = middle;
    }
    return low;
}

static float several(const outlook *o, int64_t kind, int64_t level, int64_t untouched) {
    float total = 0.0f;
    for (int64_t at = 0; at < o->several_count; at++) {
        double part = 0.0;
        if (untouched < o->several[at]) {
            float weight = o->several_weights[(at * (o->known + 1) + kind) * (o->levels + 1) + level];
            part = (double)weight * (double)untouched * 1000.0;
        }
        total = (float)((double)total + part);
    }
    return total;
}

/* What of a node all its devices share. */
typedef struct {
    int16_t *kind; /* of each device: row of the outlook's tables */
    int64_t level, level_after, one_kind, untouched, present;
    float before, after_all, cpu, cpu_after, gpu, shortage_before;
    int32_t rest_sum;
} node_view;

static inline int16_t known_kind(const outlook *o, int16_t kind) { return kind < o->known ? (int16_t)(kind + 1) : 0; }

static const float *table(const outlook *o, int64_t kind, int64_t level) {
    return o->unusable + (kind * (o->levels + 1) + level) * (WHOLE_MILLI + 1);
}

static void look_at_node(const fleet *f, const ask *a, const outlook *o, int64_t row, const int16_t *rest, node_view *v) {
    int64_t free_cpu = f->cpu_capacity[row] - f->cpu_booked[row];
    v->rest_sum = 0, v->untouched = 0, v->present = 0, v->one_kind = 0;
    for (int64_t slot = 0; slot < f->width; slot++) {
        int16_t kind = AT(int16_t, f->kind, slot, row);
        v->kind[slot] = known_kind(o, kind);
        v->present += kind >= 0;
        v->rest_sum += rest[slot];
        v->untouched += rest[slot] == WHOLE_MILLI;
        if (v->kind[slot] > v->one_kind) v->one_kind = v->kind[slot];
    }
    if (!o->knows_demand) return;
    v->level = level_of(o, free_cpu), v->level_after = level_of(o, free_cpu - a->cpu_milli);
    v->before = table(o, v->kind[0], v->level)[rest[0]];
    v->after_all = table(o, v->kind[0], v->level_after)[rest[0]];
    for (int64_t slot = 1; slot < f->width; slot++) {
        v->before += table(o, v->kind[slot], v->level)[rest[slot]];
        v->after_all += table(o, v->kind[slot], v->level_after)[rest[slot]];
    }
    v->before += several(o, v->one_kind, v->level, v->untouched);
    v->cpu = (float)free_cpu, v->cpu_after = v->cpu - (float)a->cpu_milli;
    v->gpu = (float)(int64_t)v->rest_sum;
    v->shortage_before = shortage(v->gpu, v->cpu, o);
}

static float foresight(const ask *a, const outlook *o, const node_view *v, int64_t slot, int16_t rest, int16_t left) {
    if (!o->knows_demand) return 0.5f;
    int64_t kind = v->kind[slot];
    const float *after = table(o, kind, v->level_after);
    float taken = after[left] - after[rest];
    int64_t less = (int16_t)((rest == WHOLE_MILLI && left < WHOLE_MILLI) * a->count);
    int64_t untouched = v->untouched - less > 0 ? v->untouched - less : 0;
    float later = v->after_all + (float)a->count * taken + several(o, v->one_kind, v->level_after, untouched);
    float gain = v->before - later;
    float taken_milli = (float)a->count * (float)(rest - left);
    float gpu_after = v->gpu - taken_milli;
    float growth = shortage(gpu_after > 0.0f ? gpu_after : 0.0f, v->cpu_after, o) - v->shortage_before;
    const float *worth = o->worth + kind * (WHOLE_MILLI + 1);
    float lost = left == 0 && rest == WHOLE_MILLI ? 0.0f : worth[rest] - worth[left];
    float cost = -o->fragmentation * gain;
    cost = cost + o->cpu_shortage * growth;
    cost = cost + o->worth_weight * lost;
    return value_of(cost, o->step_milli, o->range_milli);
}

static float packing(const ask *a, const node_view *v, int16_t rest, int16_t left) {
    float device = 1.0f - (float)left / 1000.0f;
    int32_t after = v->rest_sum - (int32_t)a->count * (rest - left);
    float capacity = (float)(v->present > 1 ? v->present : 1) * 1000.0f;
    double part = (double)after / (double)capacity;
    part = part < 0.0 ? 0.0 : part > 1.0 ? 1.0 : part;
    float node = 1.0f - (float)part;
    return (device + node) / 2.0f;
}

/* Whether the device's group can take the whole ask. */
static int holds(const fleet *f, column groups, int64_t row, int64_t slot, const uint8_t *fits, int64_t count) {
    int16_t group = AT(int16_t, groups, slot, row);
    if (group < 0) return 0;
    int64_t members = 0;
    for (int64_t other = 0; other < f->width; other++)
        members += fits[other] && AT(int16_t, groups, other, row) == group;
    return members >= count;
}

static float topology(const fleet *f, const ask *a, int64_t row, int64_t slot, const uint8_t *fits) {
    if (a->count == 1 || holds(f, f->link, row, slot, fits, a->count)) return 1.0f;
    return holds(f, f->numa, row, slot, fits, a->count) ? 0.5f : 0.0f;
}

static void judge(const fleet *f, const ask *a, int64_t row, const int64_t *counts, uint8_t *code, uint8_t *reason) {
    *code = FIT, *reason = NO_REASON;
    for (int step = 0; step < STEPS; step++)
        if (counts[step] < (step == 0 ? 1 : a->count)) {
            *code = step < 5 ? UNRESOLVABLE : UNSCHEDULABLE;
            *reason = a->reasons[step];
            break;
        }
    uint8_t state = f->node_state[row];
    if (*code > UNRESOLVABLE && state == STALE) *code = UNSCHEDULABLE, *reason = a->reasons[STEPS];
    if (*code > UNRESOLVABLE && state == CONFLICTED) *code = UNSCHEDULABLE, *reason = a->reasons[STEPS + 1];
    if (state == UNREPORTED) *code = UNSCHEDULABLE, *reason = a->reasons[STEPS];
    if (state == EMPTY) *code = UNSCHEDULABLE, *reason = a->reasons[STEPS + 2];
}

static float standing_value(const fleet *f, const ask *a, const outlook *o, const node_view *v, int64_t row,
                            int64_t slot, const uint8_t *fits, int16_t rest, int16_t left) {
    float value = 0.0f;
    int16_t kind = AT(int16_t, f->kind, slot, row);
    for (int64_t at = 0; at < a->scorers_count; at++) {
        float part = 0.0f;
        switch (a->scorers[at]) {
            case FORESIGHT: part = foresight(a, o, v, slot, rest, left); break;
            case PACKING: part = packing(a, v, rest, left); break;
            case SPREAD: part = 1.0f - packing(a, v, rest, left); break;
            case PREFERENCE: part = a->preference[kind]; break;
            case SUFFICIENCY: part = a->sufficiency[kind]; break;
            case TOPOLOGY: part = topology(f, a, row, slot, fits); break;
            default: continue;
        }
        value += a->weights[at] * part;
    }
    return value;
}

/* Whether two slots of a node have the same value: topology, which asks for the group, matters to several devices only. */
static int are_alike(const fleet *f, const ask *a, int64_t row, int64_t one, int64_t other, const int16_t *rests,
                     const int16_t *lefts) {
    return a->count == 1 && rests[one] == rests[other] && lefts[one] == lefts[other] &&
           AT(int16_t, f->kind, one, row) == AT(int16_t, f->kind, other, row);
}

static void stand_on(const fleet *f, const ask *a, const outlook *o, int64_t row, standing *s) {
    int64_t counts[STEPS] = {0};
    uint8_t fits[MOST_WIDTH];
    int16_t rests[MOST_WIDTH], lefts[MOST_WIDTH], kinds[MOST_WIDTH];
    int fresh = f->node_state[row] == FRESH, any = 0;
    for (int64_t slot = 0; slot < f->width; slot++) {
        int16_t kind = AT(int16_t, f->kind, slot, row);
        uint8_t mode = AT(uint8_t, f->mode, slot, row);
        int32_t mib = AT(int32_t, f->capacity_mib, slot, row), milli = AT(int32_t, f->capacity_milli, slot, row);
        int32_t free_mib = minus(minus(mib, AT(int32_t, f->booked_mib, slot, row)), AT(int32_t, f->foreign_mib, slot, row));
        int32_t free_milli = minus(milli, AT(int32_t, f->booked_milli, slot, row));
        int32_t memory, compute;
        if (a->memory_mib >= 0) memory = (int32_t)a->memory_mib;
        else memory = a->is_whole ? mib : times_over(mib, a->compute_milli, WHOLE_MILLI);
        compute = a->compute_milli >= 0 ? (int32_t)a->compute_milli : times_over(milli, a->memory_mib, mib);
        int sized = memory > 0 && memory <= mib && (a->is_whole || compute <= milli);
        if (a->takes_all[mode]) memory = mib, compute = milli;
        int present = kind >= 0, matching = present && a->kind_matches[kind];
        int sharing = matching && a->mode_matches[mode];
        int usable = sharing && sized && AT(uint8_t, f->device_state, slot, row) >= SUSPECT && fresh;
        int has_memory = usable && memory <= free_mib, has_both = has_memory && compute <= free_milli;
        counts[0] += present, counts[1] += present, counts[2] += matching, counts[3] += sharing;
        counts[4] += sharing && sized, counts[5] += usable, counts[6] += has_memory, counts[7] += has_both;
        int32_t unbooked = plus(free_mib, AT(int32_t, f->foreign_mib, slot, row));
        rests[slot] = remainder_milli(unbooked, free_milli, mib, milli);
        lefts[slot] = 0; /* means nothing where the ask does not fit */
        if (has_both) lefts[slot] = remainder_milli(minus(unbooked, memory), minus(free_milli, compute), mib, milli);
        fits[slot] = (uint8_t)has_both;
        any |= has_both;
    }
    judge(f, a, row, counts, s->code + row, s->reason + row);
    node_view view = {.kind = kinds};
    if (any) look_at_node(f, a, o, row, rests, &view);
    int64_t like = -1; /* the last slot that was valued: most devices of a node are alike */
    float value = 0.0f;
    for (int64_t slot = 0; slot < f->width; slot++) {
        int64_t to = slot * s->nodes + row;
        s->fits[to] = fits[slot], s->rest[to] = rests[slot], s->left[to] = lefts[slot];
        if (fits[slot] && !(like >= 0 && are_alike(f, a, row, slot, like, rests, lefts))) {
            value = standing_value(f, a, o, &view, row, slot, fits, rests[slot], lefts[slot]);
            like = slot;
        }
        s->value[to] = fits[slot] ? value : 0.0f;
    }
}

/* Work the lasting part out for `count` rows of the fleet. */
void tangram_stand(const fleet *f, const ask *a, const outlook *o, const int64_t *rows, int64_t count, standing *s) {
    for (int64_t at = 0; at < count; at++) stand_on(f, a, o, rows[at], s);
}

/* The dearest slots that taking each device breaks; two answers a node: where the device was untouched, and else. */
static void slots_broken(const fleet *f, const ask *a, const outlook *o, int64_t row, int64_t untouched, int64_t kind,
                         float *if_breaks, float *if_not) {
    int64_t cpu = f->cpu_capacity[row] - f->cpu_booked[row];
    cpu = cpu > 0 ? cpu : 0;
    int64_t cpu_after = cpu - a->cpu_milli > 0 ? cpu - a->cpu_milli : 0;
    int64_t fewer = untouched - a->count > 0 ? untouched - a->count : 0;
    double dearest_broken = 0.0, dearest_kept = 0.0;
    for (int64_t at = 0; at < o->slots_count; at++) {
        int64_t each = o->slot_cpu[at] > 1 ? o->slot_cpu[at] : 1, count = o->slot_counts[at];
        int64_t by_cpu = cpu / each, by_cpu_after = cpu_after / each;
        int64_t before = untouched / count < by_cpu ? untouched / count : by_cpu;
        int64_t kept = before - (untouched / count < by_cpu_after ? untouched / count : by_cpu_after);
        int64_t broken = before - (fewer / count < by_cpu_after ? fewer / count : by_cpu_after);
        float price = o->slot_price[at] * (float)o->slot_kinds[at * (o->known + 1) + kind];
        double cost_broken = (double)price * (double)broken, cost_kept = (double)price * (double)kept;
        if (cost_broken > dearest_broken) dearest_broken = cost_broken;
        if (cost_kept > dearest_kept) dearest_kept = cost_kept;
    }
    *if_breaks = (float)dearest_broken, *if_not = (float)dearest_kept;
}

/* What passes, for one slot of every node: the weighted sum of LOAD and SCARCITY, which policies name in this order.
   Loops without a branch and without a look-up, so that the compiler works on several nodes at a time. */
WIDER static void add_load(const float *value, const float *load, float by_load, float constant, int64_t nodes, float *total) {
    for (int64_t row = 0; row < nodes; row++) total[row] = value[row] + (by_load * load[row] + constant);
}

typedef struct {
    const float *scarce, *if_breaks, *if_not; /* of each node: how scarce the device's kind is, and what slots cost */
    const int16_t *rest, *left;
} at_slot;

WIDER static void add_scarcity(const ask *a, const outlook *o, at_slot at, const float *value, const float *load,
                               int64_t nodes, float *total) {
    const float count = (float)a->count, by_load = a->load_weight, by_scarcity = a->scarcity_weight;
    const float by_kind = o->kinds_weight, step = o->step_milli, range = o->range_milli;
    for (int64_t row = 0; row < nodes; row++) {
        float taken = count * (float)(at.rest[row] - at.left[row]);
        float broken = at.if_breaks[row], kept = at.if_not[row];
        float slots = (at.rest[row] == WHOLE_MILLI) & (at.left[row] < WHOLE_MILLI) ? broken : kept;
        float cost = by_kind * (at.scarce[row] * taken) + slots;
        total[row] = value[row] + (by_load * load[row] + by_scarcity * value_of(cost, step, range));
    }
}

/* How scarce each node's device of a slot is; what the slot before has of the same kind is there already. */
static void look_up_scarcity(const outlook *o, const int16_t *kind, const int16_t *before, int64_t nodes, float *scarce) {
    for (int64_t row = 0; row < nodes; row++)
        if (!before || kind[row] != before[row]) scarce[row] = o->scarce[known_kind(o, kind[row])];
}

/* Keep the highest total of the devices that fit. */
WIDER static void keep_highest(float *score, const float *total, const uint8_t *fits, int64_t nodes) {
    for (int64_t row = 0; row < nodes; row++) {
        float best = score[row], here = total[row];
        score[row] = (fits[row] != 0) & (here > best) ? here : best;
    }
}

/* Add what passes to what lasts: `value` of every device, and `score` of every node for an ask of one. `scratch` has
   room for four floats a node. */
void tangram_scores(const fleet *f, const ask *a, const outlook *o, const standing *s, column load, float *value,
                    float *score, float *scratch) {
    int64_t nodes = s->nodes;
    float *total = scratch, *scarce = scratch + nodes, *if_breaks = scratch + 2 * nodes, *if_not = scratch + 3 * nodes;
    int has_prospect = a->has_scarcity && o->knows_prospect;
    if (has_prospect) {
        memset(if_breaks, 0, 2 * (size_t)nodes * sizeof *if_breaks);
        for (int64_t row = 0; o->slots_count && row < nodes; row++) {
            int64_t untouched = 0, one_kind = 0;
            for (int64_t slot = 0; slot < f->width; slot++) {
                int16_t kind = known_kind(o, AT(int16_t, f->kind, slot, row));
                untouched += s->rest[slot * nodes + row] == WHOLE_MILLI;
                one_kind = kind > one_kind ? kind : one_kind;
            }
            slots_broken(f, a, o, row, untouched, one_kind, if_breaks + row, if_not + row);
        }
    }
    if (score) memset(score, 0, (size_t)nodes * sizeof *score);
    for (int64_t slot = 0; slot < f->width; slot++) {
        const int16_t *kind = &AT(int16_t, f->kind, slot, 0);
        const float *lasting = s->value + slot * nodes, *of_load = &AT(float, load, slot, 0);
        float *to = value ? value + slot * nodes : total;
        if (has_prospect) {
            look_up_scarcity(o, kind, slot ? &AT(int16_t, f->kind, slot - 1, 0) : 0, nodes, scarce);
            at_slot at = {scarce, if_breaks, if_not, s->rest + slot * nodes, s->left + slot * nodes};
            add_scarcity(a, o, at, lasting, of_load, nodes, to);
        } else {
            add_load(lasting, of_load, a->load_weight, a->has_scarcity ? a->scarcity_weight * 0.5f : 0.0f, nodes, to);
        }
        if (score) keep_highest(score, to, s->fits + slot * nodes, nodes);
    }
    for (int64_t row = 0; score && row < nodes; row++)
        score[row] = s->code[row] != FIT ? 0.0f : score[row] < 1.0f ? score[row] : 1.0f;
}

/* The load of every device of these rows as a value, 1 for an idle one down to 0 (policies/load.py, which says what the
   numbers mean). Whole numbers are divided as doubles, as numpy does it. `values` has `nodes` entries a slot. */
void tangram_load(const load_columns *l, const int64_t *rows, int64_t count, float unknown, float foreign_part,
                  float *values) {
    for (int64_t slot = 0; slot < l->width; slot++)
        for (int64_t at = 0; at < count; at++) {
            int64_t row = rows[at];
            int32_t milli = AT(int32_t, l->capacity_milli, slot, row), mib = AT(int32_t, l->capacity_mib, slot, row);
            float load = AT(float, l->load, slot, row), measured = load != load ? unknown : load;
            double settling = (double)AT(int32_t, l->settling_milli, slot, row) / (double)(float)(milli > 1 ? milli : 1);
            double foreign = (double)AT(int32_t, l->foreign_mib, slot, row) / (double)(float)(mib > 1 ? mib : 1);
            double busy = (double)measured + settling, held = foreign > 0.0 ? foreign : 0.0;
            busy = busy < 1.0 ? busy : 1.0, held = held < 1.0 ? held : 1.0;
            double value = 1.0 - (double)(1.0f - foreign_part) * busy - (double)foreign_part * held;
            values[slot * l->nodes + row] = (float)value;
        }
}

/* kube-scheduler's levels for nodes that fit (pipeline.py): the best of the lowest order gets `top`, the others share
   0 to `top` - 1 in proportion. */
void tangram_levels(const float *score, const uint32_t *order, const int64_t *rows, int64_t count, int32_t top,
                    int32_t *levels) {
    if (!count) return;
    float lowest = score[rows[0]], highest = lowest;
    int64_t best = 0;
    for (int64_t at = 1; at < count; at++) {
        float each = score[rows[at]];
        if (each < lowest) lowest = each;
        if (each > highest || (each == highest && order[rows[at]] < order[rows[best]])) best = at, highest = each;
    }
    float spread = highest - lowest, steps = (float)(top - 1);
    for (int64_t at = 0; at < count; at++)
        levels[at] = spread > 0.0f ? (int32_t)((score[rows[at]] - lowest) / spread * steps) : top - 1;
    levels[best] = top;
}
