/* The picture of one layer. */
#include <stdarg.h>
#include <string.h>

#include "engine/plan_print.h"

#define MOST_NODES   8 /* columns */
#define LEFT         20
#define TOP          104
#define COLUMN_WIDTH 196
#define COLUMN_STEP  224
#define LABEL_WIDTH  110
#define BUFFER_HIGH  20
#define BAR_HIGH     8
#define NEAR         12 /* gaps: within a node, across nodes */
#define FAR          56

struct picture {
    FILE *out; /* NULL: nothing is printed, only y moves */
    const struct plan_listing *listing;
    const struct plan_stretch *stretch;
    int n_nodes; /* that are shown */
    int y;
};

static void print(const struct picture *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void print(const struct picture *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (p->out)
        vfprintf(p->out, format, args);
    va_end(args);
}

static int column(int node)
{
    return LEFT + node * COLUMN_STEP;
}

static int middle(int node)
{
    return column(node) + COLUMN_WIDTH / 2;
}

static int right_edge(const struct picture *p)
{
    return column(p->n_nodes - 1) + COLUMN_WIDTH;
}

static void print_text(const struct picture *p, int x, int y, const char *style, const char *text)
{
    print(p, "<text x=\"%d\" y=\"%d\" %s>%s</text>\n", x, y, style, text);
}

#define CENTRED "text-anchor=\"middle\""
#define TINY    "font-size=\"12\""
#define SMALL   "text-anchor=\"middle\" font-size=\"11\" fill=\"#555\""

/* What the step leaves behind for the next ones. */
static const char *output_name(const struct picture *p, const struct plan_row *row)
{
    const struct engine_options *o = &p->listing->plan->options;
    bool is_partial = o->dataflow != DATAFLOW_ROW && p->listing->plan->layout->n_nodes > 1;
    switch (row->kind) {
    case STEP_EMBED:
    case STEP_REDUCE: return "residual";
    case STEP_NORM:
    case STEP_QUANTISE: return strncmp(row->kernels, "peak", 4) ? "activations" : "largest value";
    case STEP_QKV: return row->writes == REACH_FIRST ? "q; KV on page's node" : "q, KV cache";
    case STEP_HEAD_NORM: return "q, KV cache";
    case STEP_KV_STORE: return "KV cache";
    case STEP_ATTENTION: return o->is_attention_whole ? "attended" : "results of chunks";
    case STEP_FOLD: return "attended";
    case STEP_ATTN_OUTPUT:
    case STEP_DOWN: return is_partial ? "partial sum" : "residual";
    case STEP_GATE_UP: return "gated";
    case STEP_OUTPUT: return "logits";
    case STEP_EXTRA:
    case N_STEP_KINDS: break;
    }
    return NULL;
}

static void draw_line(const struct picture *p, int x0, int y0, int x1, int y1)
{
    const char *colour = x0 == x1 ? "near" : "far";
    print(p,
          "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" class=\"%s\" marker-end=\"url(#%s)\"/>\n",
          x0, y0, x1, y1, colour, colour);
}

/* Arrows between the row of nodes at y0 and that at y1. is_from: the reach is where they come from. */
static void draw_arrows(const struct picture *p, enum reach reach, bool is_from, int y0, int y1)
{
    for (int a = 0; a < p->n_nodes; a++) {
        for (int b = 0; b < p->n_nodes; b++) {
            int other = is_from ? a : b;
            if (reach == REACH_ALL || (reach == REACH_FIRST ? other == 0 : a == b))
                draw_line(p, middle(a), y0, middle(b), y1);
        }
    }
}

static void draw_buffers(struct picture *p, const char *name, enum reach reach)
{
    for (int node = 0; node < (reach == REACH_FIRST ? 1 : p->n_nodes); node++) {
        print(p,
              "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"10\" class=\"buffer\"/>\n",
              column(node) + 24, p->y, COLUMN_WIDTH - 48, BUFFER_HIGH);
        print_text(p, middle(node), p->y + 14, CENTRED " font-size=\"11\"", name);
    }
    p->y += BUFFER_HIGH;
}

static void draw_box(const struct picture *p, int node, const struct plan_row *row, int high)
{
    char text[128];
    bool is_idle = row->n_units == 0 && row->each[0] == 0;
    print(p, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"3\" class=\"%s\"/>\n",
          column(node), p->y, COLUMN_WIDTH, high, is_idle ? "idle" : "step");
    print_text(p, middle(node), p->y + 17, CENTRED " font-weight=\"bold\"",
               step_kind_name(row->kind));
    if (row->bytes)
        snprintf(text, sizeof text, "%d rows, %.2f MB", row->n_rows, (double)row->bytes / 1e6);
    else
        snprintf(text, sizeof text, "%d unit%s%s", row->n_units, row->n_units == 1 ? "" : "s",
                 row->is_leader ? ", the leader alone" : "");
    print_text(p, middle(node), p->y + 33, CENTRED, text);
    if (!row->each[0])
        return;
    snprintf(text, sizeof text, "first: %s", row->each);
    print_text(p, middle(node), p->y + 48, SMALL, text);
}

static void draw_barrier(struct picture *p, enum sync sync)
{
    if (sync == SYNC_NONE)
        return;
    p->y += NEAR;
    if (sync == SYNC_NODE) {
        for (int node = 0; node < p->n_nodes; node++)
            print(p, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"2\" class=\"barrier\"/>\n",
                  column(node), p->y, COLUMN_WIDTH);
        p->y += 2;
        return;
    }
    print(p, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" class=\"barrier\"/>\n", LEFT - 8,
          p->y, right_edge(p) - LEFT + 16, BAR_HIGH);
    print_text(p, right_edge(p) + 16, p->y + 9, "font-size=\"12\"",
               sync == SYNC_FLAT ? "flat barrier" : "global barrier");
    p->y += BAR_HIGH;
}

/* A step: arrows from its input, boxes, arrows to its output, its barrier. */
static void draw_step(struct picture *p, int step)
{
    struct plan_row first = plan_row(p->listing, 0, step);
    const char *output = output_name(p, &first);
    int below = p->y, high = 42;
    p->y += first.reads == REACH_OWN ? NEAR : FAR;
    for (int node = 0; node < p->n_nodes; node++) {
        struct plan_row row = plan_row(p->listing, node, step);
        high = row.each[0] ? 56 : high;
    }
    draw_arrows(p, first.reads, true, below, p->y);
    for (int node = 0; node < p->n_nodes; node++) {
        struct plan_row row = plan_row(p->listing, node, step);
        draw_box(p, node, &row, high);
    }
    p->y += high;
    if (output) {
        below = p->y;
        p->y += first.writes == REACH_OWN ? NEAR : FAR;
        draw_arrows(p, first.writes, false, below, p->y);
        draw_buffers(p, output, first.writes);
    }
    draw_barrier(p, first.sync);
}

static void describe_cut(const struct cut *cut, int node, char *text, size_t size)
{
    long long head0 = cut->heads[node], head1 = cut->heads[node + 1];
    long long ff0 = cut->ff[node], ff1 = cut->ff[node + 1];
    char heads[64] = "no heads", ff[64] = "no FFN";
    if (head1 > head0)
        snprintf(heads, sizeof heads, "heads %lld to %lld", head0, head1 - 1);
    if (ff1 > ff0)
        snprintf(ff, sizeof ff, "FFN %lld to %lld", ff0, ff1 - 1);
    snprintf(text, size, "%s, %s", heads, ff);
}

static void draw_head(const struct picture *p)
{
    const struct plan *plan = p->listing->plan;
    const struct cut *cut = &plan->slices.cut;
    int n_global = 0, n_node = 0;
    for (int i = 0; i < p->stretch->n_steps; i++) {
        struct plan_row row = plan_row(p->listing, 0, p->stretch->step0 + i);
        n_node += row.sync == SYNC_NODE;
        n_global += row.sync == SYNC_GLOBAL || row.sync == SYNC_FLAT;
    }
    char text[192];
    snprintf(text, sizeof text, "%s on %d node%s: ",
             plan->options.dataflow == DATAFLOW_ROW ? "Row-owned" : "Column-split",
             plan->layout->n_nodes, plan->layout->n_nodes == 1 ? "" : "s");
    size_t used = strlen(text);
    if (p->stretch->n_layers > 1)
        snprintf(text + used, sizeof text - used, "one of %d layers alike", p->stretch->n_layers);
    else
        snprintf(text + used, sizeof text - used, "layer %d", p->stretch->layer);
    print_text(p, LEFT, 28, "font-size=\"17\" font-weight=\"bold\"", text);
    snprintf(text, sizeof text, "%d global and %d node barrier%s%s", n_global, n_node,
             n_node == 1 ? "" : "s",
             p->n_nodes < plan->layout->n_nodes ? "; the first nodes are shown" : "");
    print_text(p, LEFT, 48, "", text);
    for (int node = 0; node < p->n_nodes; node++) {
        snprintf(text, sizeof text, "node %d, %d thread%s", node,
                 plan->layout->nodes[node].n_threads,
                 plan->layout->nodes[node].n_threads == 1 ? "" : "s");
        print_text(p, middle(node), TOP - 28, CENTRED " font-weight=\"bold\"", text);
        describe_cut(cut, node, text, sizeof text);
        print_text(p, middle(node), TOP - 11, SMALL, text);
    }
}

static void draw_legend(struct picture *p)
{
    int x = LEFT, right = LEFT + 300;
    p->y += 22;
    print(p, "<rect x=\"%d\" y=\"%d\" width=\"24\" height=\"14\" class=\"step\"/>\n", x, p->y);
    print_text(p, x + 32, p->y + 12, TINY, "step: rows of weights, MB read for a token");
    print(p, "<rect x=\"%d\" y=\"%d\" width=\"24\" height=\"14\" rx=\"7\" class=\"buffer\"/>\n",
          right, p->y);
    print_text(p, right + 32, p->y + 12, TINY, "in this node's memory");
    p->y += 22;
    print(p, "<rect x=\"%d\" y=\"%d\" width=\"24\" height=\"2\" class=\"barrier\"/>\n", x,
          p->y + 6);
    print_text(p, x + 32, p->y + 12, TINY, "node barrier");
    print(p, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" class=\"far\"/>\n", right, p->y + 7,
          right + 24, p->y + 7);
    print_text(p, right + 32, p->y + 12, TINY, "reads or writes memory of another node");
    p->y += 22;
    print_text(p, x, p->y + 12, TINY, "first: what every thread does for itself before its rows");
    p->y += 26;
}

static void draw(struct picture *p)
{
    draw_head(p);
    p->y = TOP;
    draw_buffers(p, "residual", REACH_OWN);
    for (int i = 0; i < p->stretch->n_steps; i++)
        draw_step(p, p->stretch->step0 + i);
    draw_legend(p);
}

static void print_style(FILE *out)
{
    fprintf(out, "<style>\n"
                 ".step { fill: #dcebf7; stroke: #0072b2 }\n"
                 ".idle { fill: #fff; stroke: #999; stroke-dasharray: 4 3 }\n"
                 ".buffer { fill: #fff6dd; stroke: #b08000 }\n"
                 ".barrier { fill: #333 }\n"
                 ".near { stroke: #777 }\n"
                 ".far { stroke: #d55e00 }\n"
                 "</style>\n");
    static const char *const marks[][2] = {{"near", "#777"}, {"far", "#d55e00"}};
    for (int i = 0; i < 2; i++)
        fprintf(out,
                "<marker id=\"%s\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" "
                "markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0 L8 4 L0 8 z\" "
                "fill=\"%s\"/></marker>\n",
                marks[i][0], marks[i][1]);
}

void plan_print_svg(FILE *out, const struct plan_listing *l)
{
    int n_nodes = l->plan->layout->n_nodes;
    struct picture p = {.listing = l, .stretch = plan_main_stretch(l)};
    p.n_nodes = n_nodes < MOST_NODES ? n_nodes : MOST_NODES;
    draw(&p); /* nowhere: for the height */
    int width = right_edge(&p) + LABEL_WIDTH;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
            "height=\"%d\" font-family=\"sans-serif\" font-size=\"13\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            width, p.y, width, p.y);
    print_style(out);
    p.out = out;
    draw(&p);
    fprintf(out, "</svg>\n");
}
