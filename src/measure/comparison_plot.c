#include "measure/comparison_plot.h"

#include <string.h>

#include "base/text.h"

#define LEFT         84
#define TOP          84
#define HIGH         330
#define RATIO_WIDTH  330
#define BETWEEN      70
#define RIGHT        40
#define BELOW        104
#define MOST_TICKS   7
#define LETTER_WIDTH 7.2 /* of 12 pixel sans-serif, on average */

/* Distinct also in grey and for the colour-blind (after Okabe and Ito); red is for what is
 * disturbed. */
static const char *const colours[COMPARISON_MOST] = {"#0072b2", "#e69f00", "#009e73", "#cc79a7",
                                                     "#56b4e9", "#7a5195", "#8c6d31", "#444444"};

/* Values from low to high on pixels from begin to end. */
struct axis {
    double low, high, begin, end;
    double step; /* between ticks */
};

struct plot {
    FILE *out;
    const struct comparison *c;
    const struct comparison_analysis *a;
    double column_width, right_begin;
    struct axis value, ratio;
    int n_rounds[2]; /* highest number of a steady and of a cold round */
};

static double on(const struct axis *axis, double value)
{
    return axis->begin + (value - axis->low) / (axis->high - axis->low) * (axis->end - axis->begin);
}

static void axis_include(struct axis *axis, double value)
{
    axis->low = fmin(axis->low, value);
    axis->high = fmax(axis->high, value);
}

/* Room at both ends, and a step of 1, 2 or 5 times a power of ten. */
static void axis_finish(struct axis *axis)
{
    double room = fmax(0.06 * (axis->high - axis->low), 0.005 * axis->high);
    axis->low -= room;
    axis->high += room;
    double rough = (axis->high - axis->low) / MOST_TICKS, power = pow(10, floor(log10(rough)));
    double times = rough / power;
    axis->step = power * (times <= 1 ? 1 : times <= 2 ? 2 : times <= 5 ? 5 : 10);
}

static void print_escaped(FILE *out, struct text text)
{
    for (size_t i = 0; i < text.n; i++) {
        char c = text.bytes[i];
        if (c == '<')
            fputs("&lt;", out);
        else if (c == '&')
            fputs("&amp;", out);
        else
            fputc(c, out);
    }
}

/* As many characters as fit into so many pixels, with dots for those left out. */
static void print_fitting(FILE *out, const char *name, double pixels)
{
    size_t n = strlen(name), fits = 0, at = 0;
    for (double used = 0; at < n && used + LETTER_WIDTH <= pixels; used += LETTER_WIDTH) {
        fits = at;
        int length = utf8_decode(name + at, n - at, NULL);
        at += length ? (size_t)length : 1;
    }
    print_escaped(out, (struct text){name, at < n ? fits : n});
    fputs(at < n ? "…" : "", out);
}

static void text_at(const struct plot *p, double x, double y, const char *style, const char *text)
{
    fprintf(p->out, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, style);
    print_escaped(p->out, text_of(text));
    fprintf(p->out, "</text>\n");
}

static void line(const struct plot *p, double x0, double y0, double x1, double y1,
                 const char *style)
{
    fprintf(p->out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x0, y0, x1, y1,
            style);
}

enum mark { MARK_USED, MARK_COLD, MARK_LEFT_OUT, MARK_DISTURBED };

static void draw_mark(const struct plot *p, enum mark mark, double x, double y, const char *colour)
{
    switch (mark) {
    case MARK_USED:
        fprintf(p->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\" fill=\"%s\"/>\n", x, y, colour);
        break;
    case MARK_COLD:
        fprintf(p->out,
                "<path d=\"M%.1f %.1f l5 5 l-5 5 l-5 -5 z\" fill=\"#fff\" stroke=\"%s\"/>\n", x,
                y - 5, colour);
        break;
    case MARK_LEFT_OUT:
        fprintf(p->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"#fff\" stroke=\"%s\"/>\n",
                x, y, colour);
        break;
    case MARK_DISTURBED:
        fprintf(p->out,
                "<path d=\"M%.1f %.1f l10 10 m0 -10 l-10 10\" stroke=\"#cc3311\" "
                "stroke-width=\"2.5\" fill=\"none\"/>\n",
                x - 5, y - 5);
        break;
    }
}

static enum mark mark_of(const struct plot *p, const struct comparison_run *run)
{
    if (run->is_disturbed)
        return MARK_DISTURBED;
    if (run->is_cold)
        return MARK_COLD;
    return comparison_uses(p->c, p->a, run) ? MARK_USED : MARK_LEFT_OUT;
}

/* Cold rounds come first, then the steady ones, each at its place in the variant's column. */
static double x_of_run(const struct plot *p, const struct comparison_run *run)
{
    int place = run->is_cold ? run->round - 1 : p->n_rounds[1] + run->round - 1;
    int n = p->n_rounds[0] + p->n_rounds[1];
    return LEFT + p->column_width * (run->variant + 0.1 + 0.8 * (place + 0.5) / n);
}

static void draw_run(const struct plot *p, const struct comparison_run *run)
{
    double x = x_of_run(p, run), y = on(&p->value, run->value);
    char text[16];
    fprintf(p->out, "<g><title>%s%s %d, attempt %d: %.6g", run->is_disturbed ? "disturbed: " : "",
            run->is_cold ? "cold round" : "round", run->round, run->attempt, run->value);
    if (isfinite(run->foreign_cpus))
        fprintf(p->out, "; %.2f foreign CPUs", run->foreign_cpus);
    fprintf(p->out, "</title>\n");
    draw_mark(p, mark_of(p, run), x, y, colours[run->variant]);
    if (run->is_disturbed) {
        snprintf(text, sizeof text, "%d", run->round);
        text_at(p, x + 7, y - 4, "class=\"alarm\"", text);
    }
    fprintf(p->out, "</g>\n");
}

static void draw_values_axis(const struct plot *p)
{
    double right = LEFT + p->column_width * p->c->n_variants;
    char text[32];
    for (double v = ceil(p->value.low / p->value.step) * p->value.step; v <= p->value.high;
         v += p->value.step) {
        line(p, LEFT, on(&p->value, v), right, on(&p->value, v), "class=\"grid\"");
        snprintf(text, sizeof text, "%.6g", fabs(v) < p->value.step / 2 ? 0 : v);
        text_at(p, LEFT - 8, on(&p->value, v) + 4, "class=\"tick\" text-anchor=\"end\"", text);
    }
    line(p, LEFT, TOP, LEFT, TOP + HIGH, "class=\"axis\"");
    line(p, LEFT, TOP + HIGH, right, TOP + HIGH, "class=\"axis\"");
}

static const char *values_title(const struct comparison *c)
{
    static const char *const titles[N_COMPARISON_VALUES][2] = {
        {"tokens a second", "tokens a second"},
        {"number of the pattern: higher is better", "number of the pattern: lower is better"},
        {"seconds: lower is better", "seconds: lower is better"}};
    return titles[c->value][c->is_lower_better];
}

static void draw_median(const struct plot *p, int v)
{
    double x = LEFT + p->column_width * v, y = on(&p->value, p->a->variants[v].median);
    char text[96];
    fprintf(p->out,
            "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
            "stroke-width=\"2\"/>\n",
            x + 0.08 * p->column_width, y, x + 0.92 * p->column_width, y, colours[v]);
    fprintf(p->out, "<text x=\"%.1f\" y=\"%d\" class=\"name\"><title>", x + 0.5 * p->column_width,
            TOP + HIGH + 18);
    print_escaped(p->out, text_of(p->c->names[v]));
    fprintf(p->out, "</title>");
    print_fitting(p->out, p->c->names[v], p->column_width - 6);
    fprintf(p->out, "</text>\n");
    snprintf(text, sizeof text, "%.4g", p->a->variants[v].median);
    text_at(p, x + 0.5 * p->column_width, TOP + HIGH + 34, "class=\"name\"", text);
}

static void draw_values(const struct plot *p)
{
    text_at(p, LEFT, TOP - 18, "class=\"title\"", values_title(p->c));
    draw_values_axis(p);
    for (int v = 0; v < p->c->n_variants; v++)
        draw_median(p, v);
    for (size_t i = 0; i < p->c->n_runs; i++)
        draw_run(p, &p->c->runs[i]);
}

static void draw_ratio_axis(const struct plot *p)
{
    char text[32];
    for (double v = ceil(p->ratio.low / p->ratio.step) * p->ratio.step; v <= p->ratio.high;
         v += p->ratio.step) {
        double x = on(&p->ratio, v);
        line(p, x, TOP, x, TOP + HIGH, "class=\"grid\"");
        snprintf(text, sizeof text, "%.5g", v);
        text_at(p, x, TOP + HIGH + 18, "class=\"tick\" text-anchor=\"middle\"", text);
    }
    double one = on(&p->ratio, 1);
    line(p, one, TOP, one, TOP + HIGH, "stroke=\"#333\" stroke-dasharray=\"5 3\"");
    line(p, p->right_begin, TOP + HIGH, p->right_begin + RATIO_WIDTH, TOP + HIGH, "class=\"axis\"");
}

/* Small dots: the ratio of each round that counts. */
static void draw_ratio_dots(const struct plot *p, int v, double y)
{
    for (size_t i = 0; i < p->c->n_runs; i++) {
        const struct comparison_run *run = &p->c->runs[i];
        if (run->variant != v || !comparison_uses(p->c, p->a, run))
            continue;
        double base = comparison_value_of(p->c, false, run->round, run->attempt, p->a->base);
        fprintf(p->out,
                "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\" fill-opacity=\"0.45\"/>\n",
                on(&p->ratio, run->value / base), y + 13, colours[v]);
    }
}

static void draw_ratio_row(const struct plot *p, int v, double y)
{
    const struct comparison_summary *s = &p->a->variants[v];
    double low = on(&p->ratio, s->interval.low), high = on(&p->ratio, s->interval.high);
    fprintf(p->out, "<text x=\"%.1f\" y=\"%.1f\" class=\"row\">", p->right_begin + 6, y - 11);
    print_fitting(p->out, p->c->names[v], RATIO_WIDTH - 170);
    fprintf(p->out, ": %.3f (%.3f to %.3f)</text>\n", s->ratio, s->interval.low, s->interval.high);
    fprintf(p->out, "<g stroke=\"%s\" stroke-width=\"2\">\n", colours[v]);
    line(p, low, y, high, y, "");
    line(p, low, y - 5, low, y + 5, "");
    line(p, high, y - 5, high, y + 5, "");
    fprintf(p->out, "</g>\n");
    draw_mark(p, MARK_USED, on(&p->ratio, s->ratio), y, colours[v]);
    draw_ratio_dots(p, v, y);
}

static void draw_ratios(const struct plot *p)
{
    fprintf(p->out, "<text x=\"%.1f\" y=\"%d\" class=\"title\">ratio to ", p->right_begin,
            TOP - 18);
    print_fitting(p->out, p->c->names[p->a->base], 150);
    fprintf(p->out, " in the same round</text>\n");
    draw_ratio_axis(p);
    int row = 0;
    for (int v = 0; v < p->c->n_variants; v++)
        if (v != p->a->base)
            draw_ratio_row(p, v, TOP + HIGH * (row++ + 0.55) / (p->c->n_variants - 1));
}

static void draw_head(const struct plot *p)
{
    const struct comparison_analysis *a = p->a;
    int n_disturbed = a->n_rounds - a->n_clean;
    char text[200], repeated[64] = "";
    text_at(p, 20, 30, "font-size=\"17\" font-weight=\"bold\"", "trine compare");
    if (a->n_repeated)
        snprintf(repeated, sizeof repeated, "; %d disturbed attempt%s repeated", a->n_repeated,
                 a->n_repeated == 1 ? "" : "s");
    snprintf(text, sizeof text, "%d round%s in rotating order, %d of them disturbed%s%s",
             a->n_rounds, a->n_rounds == 1 ? "" : "s", n_disturbed,
             n_disturbed == 0    ? ""
             : a->uses_disturbed ? " but used: too few are clean"
                                 : " and left out",
             repeated);
    text_at(p, 166, 30, a->uses_disturbed ? "class=\"alarm\"" : "", text);
}

static void draw_legend(const struct plot *p)
{
    static const char *const texts[] = {"a run that counts", "a cold run",
                                        "left out: its round is disturbed or was repeated",
                                        "disturbed by other programs, with its round"};
    static const double places[] = {LEFT, LEFT + 160, LEFT, LEFT + 340};
    for (int i = 0; i < 4; i++) {
        double y = TOP + HIGH + (i < 2 ? 62 : 84);
        draw_mark(p, (enum mark)i, places[i], y - 4, "#555");
        text_at(p, places[i] + 12, y, "class=\"tick\"", texts[i]);
    }
    text_at(p, p->right_begin, TOP + HIGH + 40, "class=\"tick\"",
            "large: median, 95 % interval; small: rounds");
}

static void measure_axes(struct plot *p)
{
    const struct comparison *c = p->c;
    p->value = (struct axis){INFINITY, -INFINITY, TOP + HIGH, TOP, 0};
    p->ratio = (struct axis){1, 1, p->right_begin, p->right_begin + RATIO_WIDTH, 0};
    for (size_t i = 0; i < c->n_runs; i++) {
        const struct comparison_run *run = &c->runs[i];
        axis_include(&p->value, run->value);
        if (run->round > p->n_rounds[run->is_cold])
            p->n_rounds[run->is_cold] = run->round;
        if (comparison_uses(c, p->a, run))
            axis_include(&p->ratio, run->value / comparison_value_of(c, false, run->round,
                                                                     run->attempt, p->a->base));
    }
    axis_finish(&p->value);
    axis_finish(&p->ratio);
}

static void print_style(FILE *out)
{
    fprintf(out, "<style>\n"
                 ".grid { stroke: #e4e4e4 }\n"
                 ".axis { stroke: #555 }\n"
                 ".tick { font-size: 12px; fill: #444 }\n"
                 ".title { font-weight: bold }\n"
                 ".name { font-size: 12px; text-anchor: middle }\n"
                 ".row { font-size: 12px }\n"
                 ".alarm { font-size: 11px; fill: #cc3311; font-weight: bold }\n"
                 "</style>\n");
}

void comparison_plot(FILE *out, const struct comparison *c, const struct comparison_analysis *a)
{
    struct plot p = {.out = out, .c = c, .a = a};
    p.column_width = fmax(92, 440.0 / c->n_variants);
    p.right_begin = LEFT + p.column_width * c->n_variants + BETWEEN;
    measure_axes(&p);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %d\" width=\"%.0f\" "
            "height=\"%d\" font-family=\"sans-serif\" font-size=\"13\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            p.right_begin + RATIO_WIDTH + RIGHT, TOP + HIGH + BELOW,
            p.right_begin + RATIO_WIDTH + RIGHT, TOP + HIGH + BELOW);
    print_style(out);
    draw_head(&p);
    draw_values(&p);
    draw_ratios(&p);
    draw_legend(&p);
    fprintf(out, "</svg>\n");
}
