/* The bars of a trace. */
#include "engine/trace_svg.h"

#include <math.h>
#include <string.h>

#define BAR_STEP    28
#define BAR_HIGH    20
#define LINE        18
#define LABEL_LEAST 34 /* narrower parts don't hold their per cent */
#define TITLE_MOST  130

/* Distinct also in grey and for the colour-blind (after Okabe and Ito); ink: of text on it. */
static const struct colour {
    const char *fill, *ink;
} colours[] = {{"#0072b2", "#fff"},
               {"#e69f00", "#000"},
               {"#bb2200", "#fff"},
               {"#a6a6a6", "#000"},
               {"#44aa99", "#000"}};
_Static_assert(sizeof colours / sizeof colours[0] == N_TRACE_SHARES, "a colour for each share");
#define OUTSIDE_FILL "#f2f2f2"

void trace_svg_begin(FILE *out, int height)
{
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
            "height=\"%d\" font-family=\"DejaVu Sans, Verdana, sans-serif\" font-size=\"12\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            PICTURE_ALL, height, PICTURE_ALL, height);
}

/* 1, 2 or 5 times a power of ten: a span has at most eight of it. */
static double round_step(double span)
{
    double step = pow(10, floor(log10(span / 8)));
    if (span > 8 * 5 * step)
        return 10 * step;
    if (span > 8 * 2 * step)
        return 5 * step;
    return span > 8 * step ? 2 * step : step;
}

void trace_svg_axis(FILE *out, double span_s, int y, int bottom)
{
    double unit = span_s < 1e-4 ? 1e-6 : 1e-3;
    double span = span_s > 0 ? span_s / unit : 1, step = round_step(span);
    for (int i = 0; i * step <= span * 1.0001; i++) {
        double x = PICTURE_LEFT + PICTURE_WIDTH * i * step / span;
        fprintf(out,
                "<path d=\"M%.1f %dV%d\" stroke=\"#ccc\"/><text x=\"%.1f\" y=\"%d\" "
                "text-anchor=\"middle\" fill=\"#444\">%g%s</text>\n",
                x, y, bottom, x, bottom + 15, i * step,
                i             ? ""
                : unit < 1e-3 ? " µs"
                              : " ms");
    }
}

int trace_svg_legend(FILE *out, int x, int y, const char *fill, const char *text)
{
    fprintf(out,
            "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\" stroke=\"#888\" "
            "stroke-width=\"0.5\"/><text x=\"%d\" y=\"%d\">%s</text>\n",
            x, y, fill, x + 17, y + 10, text);
    return x + 36 + 13 * (int)strlen(text) / 2;
}

static void print_escaped(FILE *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '<')
            fputs("&lt;", out);
        else if (text[i] == '&')
            fputs("&amp;", out);
        else
            fputc(text[i], out);
    }
}

/* Bytes of a line: whole words, as many as fit; a longer word is cut, but not within a character. */
static size_t line_length(const char *text)
{
    size_t n = strlen(text);
    if (n <= TITLE_MOST)
        return n;
    for (n = TITLE_MOST; n > 0 && text[n] != ' ';)
        n--;
    if (n > 0)
        return n;
    for (n = TITLE_MOST; ((unsigned char)text[n] & 0xc0) == 0x80;)
        n--;
    return n;
}

/* The title in lines; returns the y below. out NULL: only that. */
static int print_title(FILE *out, const char *title, int y)
{
    while (*title) {
        size_t n = line_length(title);
        if (out) {
            fprintf(out, "<text x=\"10\" y=\"%d\">", y);
            print_escaped(out, title, n);
            fprintf(out, "</text>\n");
        }
        y += LINE;
        title += n;
        title += strspn(title, " ");
    }
    return y;
}

/* One part of a bar; returns its end. */
static double print_part(FILE *out, double x, int y, double width, const struct colour *colour,
                         const char *title, double seconds, double per_cent)
{
    if (width <= 0)
        return x;
    fprintf(out,
            "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\"><title>%s: %.3f "
            "ms</title></rect>\n",
            x, y, width, BAR_HIGH, colour->fill, title, 1e3 * seconds);
    if (width >= LABEL_LEAST)
        fprintf(out,
                "<text x=\"%.2f\" y=\"%d\" text-anchor=\"middle\" font-size=\"11\" fill=\"%s\">"
                "%.0f %%</text>\n",
                x + width / 2, y + 14, colour->ink, per_cent);
    return x + width;
}

/* The shares of a sum side by side; outside: what follows them. */
static void print_bar(FILE *out, const struct trace_report *r, int y, const char *name,
                      const struct trace_sum *sum, double outside)
{
    double x = PICTURE_LEFT, total = sum->total + outside;
    double whole = trace_whole(r) > 0 ? trace_whole(r) : 1, scale = PICTURE_WIDTH / whole;
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", PICTURE_LEFT - 8,
            y + 14, name);
    for (int i = 0; i < N_TRACE_SHARES; i++) {
        double seconds = trace_share(sum, i);
        x = print_part(out, x, y, scale * seconds, &colours[i], trace_share_name(i), seconds,
                       100 * seconds / whole);
    }
    x = print_part(out, x, y, scale * outside, &(struct colour){OUTSIDE_FILL, "#000"},
                   "outside of steps", outside, 100 * outside / whole);
    fprintf(out,
            "<text x=\"%.2f\" y=\"%d\" stroke=\"#fff\" stroke-width=\"4\" "
            "paint-order=\"stroke\">%.3f ms, %.1f %%</text>\n",
            x + 6, y + 14, 1e3 * total, 100 * total / whole);
}

static void print_legend(FILE *out, int y)
{
    int x = PICTURE_LEFT;
    for (int i = 0; i < N_TRACE_SHARES; i++)
        x = trace_svg_legend(out, x, y, colours[i].fill, trace_share_name(i));
    trace_svg_legend(out, x, y, OUTSIDE_FILL, "outside of steps");
}

void trace_print_svg(FILE *out, const struct trace_report *r)
{
    int n = 1, top = print_title(NULL, r->title, 2 * LINE) + 2 * LINE;
    for (int kind = 0; kind < N_STEP_KINDS; kind++)
        n += r->kinds[kind].total > 0;
    int bottom = top + n * BAR_STEP + 10, y = top;
    trace_svg_begin(out, bottom + 24);
    fprintf(out,
            "<text x=\"10\" y=\"%d\" font-size=\"14\" font-weight=\"bold\">Where the %.3f ms of a "
            "token go: mean of %d tokens, %d thread%s on %d node%s</text>\n",
            LINE, 1e3 * trace_whole(r), trace_n_written(r->trace), r->trace->n_threads,
            r->trace->n_threads == 1 ? "" : "s", r->plan->layout->n_nodes,
            r->plan->layout->n_nodes == 1 ? "" : "s");
    print_title(out, r->title, 2 * LINE);
    print_legend(out, top - LINE - 10);
    trace_svg_axis(out, trace_whole(r), top - 6, bottom);
    for (int kind = 0; kind < N_STEP_KINDS; kind++) {
        if (r->kinds[kind].total <= 0)
            continue;
        print_bar(out, r, y, step_kind_name((enum step_kind)kind), &r->kinds[kind], 0);
        y += BAR_STEP;
    }
    print_bar(out, r, y + 6, "token", &r->all, trace_whole(r) - r->all.total);
    fprintf(out, "</svg>\n");
}
