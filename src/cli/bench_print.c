#include "cli/bench_print.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench_fields.h"
#include "engine/plan.h"

static void print_md_head(void)
{
    printf("| %-30s | %10s | %10s | %7s | %-16s | %20s | %7s | %6s | %-16s |\n", "model", "size",
           "params", "threads", "test", "t/s", "GB/s", "share", "hash");
    printf("| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", "------------------------------",
           "---------:", "---------:", "------:", "----------------",
           "-------------------:", "------:", "-----:", "----------------");
}

/* "12.3", or "-" for a number that there is not. */
static const char *number_text(double value, const char *format, char out[24])
{
    snprintf(out, 24, "-");
    if (isfinite(value))
        snprintf(out, 24, format, value);
    return out;
}

static void print_md_row(const struct bench_model *model, const struct bench_run *run,
                         const struct bench_result *r)
{
    struct bench_speed speed;
    bench_speed_of(r, &speed);
    char size[16], params[24], name[64], rate[48], gb_s[24], share[24];
    snprintf(params, sizeof params, "%.2f M", (double)model->n_weights / 1e6);
    snprintf(rate, sizeof rate, "%.2f ± %.2f", speed.avg_ts, speed.stddev_ts);
    number_text(speed.gb_s, "%.2f", gb_s);
    number_text(100 * speed.share, "%.1f %%", share);
    /* one character of the rate takes two bytes */
    printf("| %-30s | %10s | %10s | %7d | %-16s | %21s | %7s | %6s | %016" PRIx64 " |\n",
           model->type, cli_size(model->bytes, size), params,
           engine_plan_of(run->engine)->layout->n_threads, bench_test_name(&r->test, name), rate,
           gb_s, share, r->hash);
}

/* One value of a CSV row in quotes, in which quotes are doubled. */
static void print_csv_text(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        if (*text == '"')
            putchar('"');
        putchar(*text);
    }
    putchar('"');
}

static void print_csv_value(const json_t *value)
{
    char text[40] = "";
    if (json_is_integer(value))
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(text, sizeof text, "%.9g", json_real_value(value));
    print_csv_text(json_is_string(value) ? json_string_value(value) : text);
}

/* A line of the names or of the values; the lists of samples have no place in it. */
static void print_csv_line(json_t *fields, bool is_head)
{
    const char *name, *separator = "";
    json_t *value;
    json_object_foreach(fields, name, value)
    {
        if (json_is_array(value))
            continue;
        fputs(separator, stdout);
        if (is_head)
            fputs(name, stdout);
        else
            print_csv_value(value);
        separator = ",";
    }
    putchar('\n');
}

static void print_json(json_t *fields, size_t flags, const char *before)
{
    char *text = json_dumps(fields, flags | JSON_REAL_PRECISION(15));
    if (text)
        printf("%s%s", before, text);
    free(text);
}

static void print_fields(const struct bench_print *print, json_t *fields)
{
    bool is_first = print->n_printed == 0;
    if (print->output == BENCH_CSV && is_first)
        print_csv_line(fields, true);
    if (print->output == BENCH_CSV)
        print_csv_line(fields, false);
    if (print->output == BENCH_JSON)
        print_json(fields, JSON_INDENT(2), is_first ? "[\n" : ",\n");
    if (print->output == BENCH_JSONL) {
        print_json(fields, JSON_COMPACT, "");
        putchar('\n');
    }
}

enum status bench_print_result(struct bench_print *print, const struct bench_model *model,
                               const struct bench_run *run, const struct bench_result *result,
                               struct error *err)
{
    if (print->output == BENCH_MD) {
        if (print->n_printed == 0)
            print_md_head();
        print_md_row(model, run, result);
    } else {
        json_t *fields = bench_fields(model, run, result);
        if (!fields)
            return fail(err, STATUS_MEMORY, "out of memory");
        print_fields(print, fields);
        json_decref(fields);
    }
    print->n_printed++;
    if (!cli_output_arrived())
        return fail(err, STATUS_IO, "standard output: cannot write");
    print->is_closed = ferror(stdout);
    return STATUS_OK;
}

void bench_print_end(struct bench_print *print)
{
    if (print->output == BENCH_JSON && print->n_printed > 0)
        printf("\n]\n");
    fflush(stdout);
}
