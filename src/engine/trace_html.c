/* The page of a trace. */
#include "engine/trace_print.h"

#define BAR_LEFT  130
#define BAR_WIDTH 660
#define BAR_STEP  30
#define BAR_HIGH  20

/* Distinct also in grey and for the colour-blind (after Okabe and Ito). */
static const char *const colours[] = {"#0072b2", "#e69f00", "#cc3311", "#999999", "#44aa99"};
_Static_assert(sizeof colours / sizeof colours[0] == N_TRACE_SHARES, "a colour for each share");

static void print_escaped(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            fputs("&lt;", out);
        else if (*text == '&')
            fputs("&amp;", out);
        else
            fputc(*text, out);
    }
}

static void print_bar(FILE *out, int y, const char *name, const struct trace_sum *sum, double scale)
{
    double x = BAR_LEFT;
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", BAR_LEFT - 8, y + 15,
            name);
    for (int i = 0; i < N_TRACE_SHARES; i++) {
        double width = scale * trace_share(sum, i);
        if (width <= 0)
            continue;
        fprintf(out,
                "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\"><title>%s: %s "
                "%.3f ms</title></rect>\n",
                x, y, width, BAR_HIGH, colours[i], name, trace_share_name(i),
                1e3 * trace_share(sum, i));
        x += width;
    }
    fprintf(out, "<text x=\"%.2f\" y=\"%d\">%.3f ms</text>\n", x + 6, y + 15, 1e3 * sum->total);
}

static void print_legend(FILE *out, int y)
{
    for (int i = 0; i < N_TRACE_SHARES; i++)
        fprintf(out,
                "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%d\" "
                "y=\"%d\">%s</text>\n",
                BAR_LEFT + 150 * i, y, colours[i], BAR_LEFT + 150 * i + 18, y + 11,
                trace_share_name(i));
}

static void print_bars(FILE *out, const struct trace_report *r)
{
    int n = 0;
    double longest = 0;
    for (int kind = 0; kind < N_STEP_KINDS; kind++) {
        n += r->kinds[kind].total > 0;
        longest = r->kinds[kind].total > longest ? r->kinds[kind].total : longest;
    }
    double scale = longest > 0 ? BAR_WIDTH / longest : 0;
    int y = 40;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 900 %d\" width=\"900\" "
            "font-family=\"sans-serif\" font-size=\"13\">\n",
            y + n * BAR_STEP);
    print_legend(out, 10);
    for (int kind = 0; kind < N_STEP_KINDS; kind++) {
        if (r->kinds[kind].total <= 0)
            continue;
        print_bar(out, y, step_kind_name((enum step_kind)kind), &r->kinds[kind], scale);
        y += BAR_STEP;
    }
    fprintf(out, "</svg>\n");
}

static void print_row(FILE *out, const char *name, const struct trace_sum *sum, double token_s)
{
    fprintf(out, "<tr><th>%s</th>", name);
    for (int i = 0; i <= N_TRACE_SHARES; i++) {
        double seconds = i < N_TRACE_SHARES ? trace_share(sum, i) : sum->total;
        fprintf(out, "<td>%.3f</td><td>%.1f&thinsp;%%</td>", 1e3 * seconds,
                token_s > 0 ? 100 * seconds / token_s : 0);
    }
    fprintf(out, "</tr>\n");
}

static void print_numbers(FILE *out, const struct trace_report *r)
{
    fprintf(out, "<table>\n<tr><th></th>");
    for (int i = 0; i <= N_TRACE_SHARES; i++)
        fprintf(out, "<th colspan=\"2\">%s</th>", i < N_TRACE_SHARES ? trace_share_name(i) : "all");
    fprintf(out, "</tr>\n");
    for (int kind = 0; kind < N_STEP_KINDS; kind++)
        if (r->kinds[kind].total > 0)
            print_row(out, step_kind_name((enum step_kind)kind), &r->kinds[kind], r->token_s);
    print_row(out, "all steps", &r->all, r->token_s);
    fprintf(out, "</table>\n");
}

void trace_print_html(FILE *out, const struct trace_report *r)
{
    fprintf(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                 "<title>Trine: where the time of a token goes</title>\n<style>\n"
                 "body { font-family: sans-serif; margin: 2em; color: #222; background: #fff }\n"
                 "table { border-collapse: collapse; margin-top: 1em; font-size: 13px }\n"
                 "th, td { padding: 3px 9px; text-align: right; border-bottom: 1px solid #ddd }\n"
                 "</style>\n</head>\n<body>\n<h1>Where the time of a token goes</h1>\n<p>");
    print_escaped(out, r->title);
    fprintf(out,
            "</p>\n<p>Milliseconds of a token of %.3f ms, mean over %d tokens and %d threads on %d "
            "nodes.\n%.2f tok/s traced, %.2f without tracing.</p>\n",
            1e3 * r->token_s, trace_n_written(r->trace), r->trace->n_threads,
            r->plan->layout->n_nodes, 1 / r->median_s, 1 / r->plain_median_s);
    print_bars(out, r);
    print_numbers(out, r);
    fprintf(out, "</body>\n</html>\n");
}
