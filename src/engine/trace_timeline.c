/* One token of a trace, thread by thread. */
#include <math.h>
#include <string.h>

#include "engine/trace_svg.h"

#define TOP      40
#define NODE_GAP 8
#define LEAST    0.15 /* narrower boxes are not seen */

/* What a box shows. Colours after Tol's bright set, text on them is black. */
enum look {
    LOOK_QKV,
    LOOK_ATTENTION,
    LOOK_OUTPUT,
    LOOK_GATE_UP,
    LOOK_DOWN,
    LOOK_LOGITS,
    LOOK_OTHER,
    LOOK_WAIT,
    N_LOOKS
};
static const struct {
    const char *fill, *text;
} looks[N_LOOKS] = {{"#6699cc", "qkv"},        {"#ee7788", "attention"}, {"#55aa66", "attn_output"},
                    {"#ddcc55", "gate_up"},    {"#77ccee", "down"},      {"#cc77aa", "output"},
                    {"#aaaaaa", "other step"}, {"url(#wait)", "waiting"}};

static enum look look_of(enum step_kind kind)
{
    switch (kind) {
    case STEP_QKV: return LOOK_QKV;
    case STEP_ATTENTION: return LOOK_ATTENTION;
    case STEP_ATTN_OUTPUT: return LOOK_OUTPUT;
    case STEP_GATE_UP: return LOOK_GATE_UP;
    case STEP_DOWN: return LOOK_DOWN;
    case STEP_OUTPUT: return LOOK_LOGITS;
    default: return LOOK_OTHER;
    }
}

struct timeline {
    FILE *out;
    const struct trace_report *report;
    const struct step *steps; /* of the first thread: kinds and layers are the same for all */
    int batch, layer;
    int64_t begin, end; /* nanoseconds that are shown */
    int row_high;
};

static bool is_shown(const struct timeline *t, int step)
{
    return t->layer < 0 || t->steps[step].layer == t->layer;
}

static void find_span(struct timeline *t)
{
    const struct trace *trace = t->report->trace;
    t->begin = INT64_MAX;
    t->end = INT64_MIN;
    for (int thread = 0; thread < trace->n_threads; thread++)
        for (int s = 0; s < trace->n_steps; s++) {
            const struct trace_step *times = &trace_steps(trace, t->batch, thread)[s];
            if (!is_shown(t, s))
                continue;
            t->begin = times->begun < t->begin ? times->begun : t->begin;
            t->end = times->left > t->end ? times->left : t->end;
        }
}

/* The token that took most nearly what the median one did. */
static void choose_batch(struct timeline *t)
{
    double least = INFINITY;
    int best = 0;
    for (t->batch = 0; t->batch < trace_n_written(t->report->trace); t->batch++) {
        find_span(t);
        double off = fabs((double)(t->end - t->begin) / 1e9 - t->report->median_s);
        best = off < least ? t->batch : best;
        least = off < least ? off : least;
    }
    t->batch = best;
}

static double x_of(const struct timeline *t, int64_t ns)
{
    return PICTURE_LEFT + PICTURE_WIDTH * (double)(ns - t->begin) / (double)(t->end - t->begin);
}

/* The part of a step that has this look. */
static bool box_of(const struct timeline *t, int thread, int s, enum look look, double *x,
                   double *width)
{
    const struct trace_step *times = &trace_steps(t->report->trace, t->batch, thread)[s];
    bool is_synced = t->steps[s].units.sync != SYNC_NONE;
    int64_t done = is_synced ? times->done : times->left;
    bool is_wait = look == LOOK_WAIT;
    if (!is_shown(t, s) || (!is_wait && look_of(t->steps[s].kind) != look))
        return false;
    *x = x_of(t, is_wait ? done : times->begun);
    *width = x_of(t, is_wait ? times->left : done) - *x;
    return *width >= LEAST;
}

/* All boxes of one look in a row, as one path: there may be thousands. */
static void print_boxes(const struct timeline *t, int thread, int y, enum look look)
{
    double x, width;
    int n = 0, high = t->row_high - 2;
    for (int s = 0; s < t->report->trace->n_steps; s++)
        if (box_of(t, thread, s, look, &x, &width))
            fprintf(t->out, "%sM%.2f %dh%.2fv%dh-%.2fz", n++ ? "" : "<path d=\"", x, y, width, high,
                    width);
    if (n > 0)
        fprintf(t->out, "\" fill=\"%s\"><title>%s</title></path>\n", looks[look].fill,
                looks[look].text);
}

/* Names of the steps that are wide enough for them. */
static void print_names(const struct timeline *t, int thread, int y)
{
    double x, width;
    for (int s = 0; s < t->report->trace->n_steps; s++) {
        const char *name = step_kind_name(t->steps[s].kind);
        if (box_of(t, thread, s, look_of(t->steps[s].kind), &x, &width) &&
            width > 6.5 * (double)strlen(name))
            fprintf(t->out,
                    "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" font-size=\"10\">%s</text>\n",
                    x + width / 2, y + t->row_high / 2 + 3, name);
    }
}

/* The rows of a node; returns the y below. */
static int print_node(const struct timeline *t, int node, int y)
{
    const struct team_layout *layout = t->report->plan->layout;
    const struct team_node *own = &layout->nodes[node];
    bool has_labels = t->row_high >= 14;
    if (!has_labels)
        fprintf(t->out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">node %d</text>\n",
                PICTURE_LEFT - 8, y + 10, node);
    for (int i = own->thread0; i < own->thread0 + own->n_threads; i++) {
        if (has_labels)
            fprintf(t->out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">node %d, CPU %d</text>\n",
                    PICTURE_LEFT - 8, y + t->row_high / 2 + 4, node, layout->cpus[i]);
        for (int look = N_LOOKS; look-- > 0;)
            print_boxes(t, i, y, (enum look)look);
        if (t->layer >= 0 && has_labels)
            print_names(t, i, y);
        y += t->row_high;
    }
    return y + NODE_GAP;
}

static void print_legend(const struct timeline *t)
{
    int x = PICTURE_LEFT;
    fprintf(t->out,
            "<defs><pattern id=\"wait\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" "
            "patternTransform=\"rotate(45)\"><rect width=\"5\" height=\"5\" fill=\"#f4f4f4\"/>"
            "<rect width=\"1.2\" height=\"5\" fill=\"#c4c4c4\"/></pattern></defs>\n");
    for (int i = 0; i < N_LOOKS; i++)
        x = trace_svg_legend(t->out, x, 8, looks[i].fill, looks[i].text);
}

int trace_middle_layer(const struct trace_report *r)
{
    const struct step *steps = r->plan->programs[r->trace->kind][0].steps;
    int most = -1, middle = -1;
    for (int s = 0; s < r->trace->n_steps; s++)
        most = steps[s].layer > most ? steps[s].layer : most;
    for (int s = 0; s < r->trace->n_steps; s++)
        if (steps[s].layer >= most / 2 && (middle < 0 || steps[s].layer < middle))
            middle = steps[s].layer;
    return middle;
}

void trace_print_timeline(FILE *out, const struct trace_report *r, int layer)
{
    struct timeline t = {.out = out, .report = r, .layer = -1};
    int n_threads = r->trace->n_threads, n_nodes = r->plan->layout->n_nodes;
    t.steps = r->plan->programs[r->trace->kind][0].steps;
    t.row_high = n_threads <= 16 ? 24 : n_threads <= 48 ? 14 : 7;
    choose_batch(&t);
    t.layer = layer;
    find_span(&t);
    if (t.end <= t.begin)
        return;
    int bottom = TOP + n_threads * t.row_high + n_nodes * NODE_GAP, y = TOP;
    trace_svg_begin(out, bottom + 24);
    print_legend(&t);
    trace_svg_axis(out, (double)(t.end - t.begin) / 1e9, TOP - 6, bottom);
    for (int node = 0; node < n_nodes; node++)
        y = print_node(&t, node, y);
    fprintf(out, "</svg>\n");
}
