#include "engine/trace_print.h"

const char *trace_share_name(int share)
{
    static const char *const names[] = {
#define TRACE_SHARE_TEXT(field, text) text,
        TRACE_SHARE_LIST(TRACE_SHARE_TEXT)
#undef TRACE_SHARE_TEXT
    };
    return names[share];
}

double trace_share(const struct trace_sum *sum, int share)
{
    const double shares[] = {
#define TRACE_SHARE_FIELD(field, text) sum->field,
        TRACE_SHARE_LIST(TRACE_SHARE_FIELD)
#undef TRACE_SHARE_FIELD
    };
    return shares[share];
}

void trace_report_sum(struct trace_report *r)
{
    trace_sums(r->trace, r->plan, 0, r->kinds, &r->all);
}

static double per_cent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

double trace_whole(const struct trace_report *r)
{
    return r->token_s > r->all.total ? r->token_s : r->all.total;
}

/* What is not in any step: the batch is set up, the team starts and ends it. */
static double outside(const struct trace_report *r)
{
    return trace_whole(r) - r->all.total;
}

static void print_line(FILE *out, const char *name, const struct trace_sum *sum, double token_s)
{
    fprintf(out, "%-14s", name);
    for (int i = 0; i < N_TRACE_SHARES; i++)
        fprintf(out, " %8.3f %5.1f %%", 1e3 * trace_share(sum, i),
                per_cent(trace_share(sum, i), token_s));
    fprintf(out, " %8.3f %5.1f %%\n", 1e3 * sum->total, per_cent(sum->total, token_s));
}

void trace_print_table(FILE *out, const struct trace_report *r)
{
    int n_threads = r->trace->n_threads, n_nodes = r->plan->layout->n_nodes;
    fprintf(out,
            "%s\n%d tokens, %d thread%s on %d node%s; milliseconds of a token, mean over threads\n",
            r->title, trace_n_written(r->trace), n_threads, n_threads == 1 ? "" : "s", n_nodes,
            n_nodes == 1 ? "" : "s");
    fprintf(out, "%-14s", "");
    for (int i = 0; i < N_TRACE_SHARES; i++)
        fprintf(out, " %16s", trace_share_name(i));
    fprintf(out, " %16s\n", "all");
    for (int kind = 0; kind < N_STEP_KINDS; kind++)
        if (r->kinds[kind].total > 0)
            print_line(out, step_kind_name((enum step_kind)kind), &r->kinds[kind], r->token_s);
    print_line(out, "all steps", &r->all, r->token_s);
    fprintf(out, "outside of steps %.3f ms (%.1f %%), token %.3f ms\n", 1e3 * outside(r),
            per_cent(outside(r), r->token_s), 1e3 * r->token_s);
    fprintf(out, "%.2f tok/s traced, %.2f without tracing (medians, in turn): it costs %.1f %%\n",
            1 / r->median_s, 1 / r->plain_median_s,
            per_cent(r->median_s - r->plain_median_s, r->plain_median_s));
}

/* The head of Chrome's list: what processes and tracks are called. */
static void print_tracks(FILE *out, const struct team_layout *layout)
{
    for (int node = 0; node < layout->n_nodes; node++) {
        const struct team_node *own = &layout->nodes[node];
        fprintf(out,
                "%s{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"node "
                "%d\"}}",
                node ? ",\n" : "", node, node);
        for (int i = own->thread0; i < own->thread0 + own->n_threads; i++)
            fprintf(out,
                    ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{"
                    "\"name\":\"thread %d, CPU %d\"}}",
                    node, i, i, layout->cpus[i]);
    }
}

static void print_slice(FILE *out, int node, int thread, int64_t begin, int64_t end,
                        const char *wait, const struct step *step, int batch)
{
    if (end <= begin)
        return;
    fprintf(out,
            ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":\"%s%s\","
            "\"cat\":\"%s\",\"args\":{\"token\":%d,\"layer\":%d}}",
            node, thread, (double)begin / 1e3, (double)(end - begin) / 1e3, wait,
            step_kind_name(step->kind), wait[0] ? "wait" : "work", batch, step->layer);
}

static void print_thread(FILE *out, const struct trace_report *r, int node, int thread,
                         int64_t start)
{
    const struct program *program = &r->plan->programs[r->trace->kind][thread];
    for (int batch = 0; batch < trace_n_written(r->trace); batch++) {
        const struct trace_step *times = trace_steps(r->trace, batch, thread);
        for (int s = 0; s < r->trace->n_steps; s++) {
            const struct step *step = &program->steps[s];
            bool is_synced = step->units.sync != SYNC_NONE;
            int64_t done = is_synced ? times[s].done : times[s].left;
            print_slice(out, node, thread, times[s].begun - start, done - start, "", step, batch);
            print_slice(out, node, thread, done - start, times[s].left - start, "wait ", step,
                        batch);
        }
    }
}

void trace_print_chrome(FILE *out, const struct trace_report *r)
{
    const struct team_layout *layout = r->plan->layout;
    int64_t start = INT64_MAX;
    for (int i = 0; i < layout->n_threads && trace_n_written(r->trace) > 0; i++)
        if (trace_steps(r->trace, 0, i)->begun < start)
            start = trace_steps(r->trace, 0, i)->begun;
    fprintf(out, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
    print_tracks(out, layout);
    for (int node = 0; node < layout->n_nodes; node++) {
        const struct team_node *own = &layout->nodes[node];
        for (int i = own->thread0; i < own->thread0 + own->n_threads; i++)
            print_thread(out, r, node, i, start);
    }
    fprintf(out, "\n]}\n");
}
