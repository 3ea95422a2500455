/* The page of a trace. */
#include "engine/trace_svg.h"

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
    fprintf(out, "<h2>Milliseconds of a token, and per cent of it</h2>\n<table>\n<tr><th></th>");
    for (int i = 0; i <= N_TRACE_SHARES; i++)
        fprintf(out, "<th colspan=\"2\">%s</th>", i < N_TRACE_SHARES ? trace_share_name(i) : "all");
    fprintf(out, "</tr>\n");
    for (int kind = 0; kind < N_STEP_KINDS; kind++)
        if (r->kinds[kind].total > 0)
            print_row(out, step_kind_name((enum step_kind)kind), &r->kinds[kind], r->token_s);
    print_row(out, "all steps", &r->all, r->token_s);
    fprintf(out, "</table>\n");
}

static void print_timelines(FILE *out, const struct trace_report *r)
{
    int layer = trace_middle_layer(r);
    if (trace_n_written(r->trace) == 0)
        return;
    fprintf(out, "<h2>One token near the median: steps of every thread</h2>\n");
    trace_print_timeline(out, r, -1);
    if (layer < 0)
        return;
    fprintf(out, "<h2>Layer %d of it</h2>\n", layer);
    trace_print_timeline(out, r, layer);
}

void trace_print_html(FILE *out, const struct trace_report *r)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<title>Trine: where the time of a token goes</title>\n<style>\n"
          "body { font: 13px sans-serif; margin: 2em; color: #222; background: #fff }\n"
          "table { border-collapse: collapse; margin-top: 1em }\n"
          "th, td { padding: 3px 9px; text-align: right; border-bottom: 1px solid #ddd }\n"
          "h2 { font-size: 16px; margin: 1.6em 0 0.5em }\n"
          "svg { max-width: 100%; height: auto; display: block }\n"
          "</style>\n</head>\n<body>\n",
          out);
    trace_print_svg(out, r);
    print_timelines(out, r);
    print_numbers(out, r);
    fprintf(
        out,
        "<p>%.2f tok/s traced, %.2f without tracing (medians, in turn).</p>\n</body>\n</html>\n",
        1 / r->median_s, 1 / r->plain_median_s);
}
